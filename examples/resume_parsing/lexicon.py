"""What the parsers know: names of sections, and words of titles, skills, degrees and schools."""

from __future__ import annotations

SECTIONS = {
    "skills": (
        "skills", "key skills", "technical skills", "core competencies", "expertise", "technologies",
        "kenntnisse", "fähigkeiten", "compétences", "habilidades", "aptitudes", "competências",
        "competenze", "vaardigheden", "languages and tools",
    ),
    "experience": (
        "experience", "work experience", "professional experience", "employment", "work history",
        "career", "berufserfahrung", "beruflicher werdegang", "expérience professionnelle",
        "expérience", "experiencia", "experiencia laboral", "experiencia profesional",
        "experiência profissional", "experiência", "esperienza lavorativa", "esperienze",
        "esperienza professionale", "werkervaring",
    ),
    "education": (
        "education", "academic background", "studies", "qualifications", "ausbildung", "bildung",
        "studium", "formation", "études", "educación", "formación", "formación académica",
        "formação", "formação académica", "istruzione", "formazione", "opleiding", "opleidingen",
    ),
    "other": (
        "contact", "objective", "summary", "profile", "references", "interests", "hobbies",
        "certificates", "publications", "kontakt", "profil", "contacto", "contatti", "kontaktdaten",
    ),
}  # fmt: skip
PRESENT = "presente|present|now|today|current|heute|aujourd'hui|actuel|actualidad|oggi|heden|nu"
MONTHS = "jan|feb|mar|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez"
SINCE = "since|seit|depuis|desde|dal|sinds"
AT = "at|bei|chez|presso|bij|für"
TITLES = (
    "abogad", "account executive", "administrator", "analista", "analyst", "apprentice", "architect",
    "assistant", "avocat", "becari", "berater", "buchhalter", "carpenter", "chef", "comptable",
    "consultant", "copywriter", "cozinheir", "designer", "developer", "director", "editor",
    "electrician", "engineer", "entwickler", "executive", "gestor", "grafic", "ingegnere",
    "ingénieur", "intern", "interpreter", "lead", "leiter", "manager", "nurse", "ontwikkelaar",
    "pasante", "pastry", "plumber", "programmer", "redakteur", "representative", "responsable",
    "scientist", "student", "supervisor", "teacher", "technician", "tirocinante", "translator",
    "vendedor", "welder", "werker", "writer",
)  # fmt: skip
DEGREES = (
    "ba", "bsc", "ma", "msc", "mba", "meng", "phd", "bachelor", "master", "magister", "diploma",
    "diplom", "degree", "doctorat", "licence", "licenciatura", "laurea", "grado", "certificate",
    "ausbildung", "curso", "associate",
)  # fmt: skip
SCHOOLS = (
    "university", "universität", "université", "universidad", "universidade", "università",
    "universiteit", "college", "institute", "politecnico", "hochschule", "hogeschool", "school",
    "berufsschule", "escola", "academy", "école",
)  # fmt: skip
SKILLS = (
    "accessibility", "agile", "airflow", "ansible", "anglais", "audit", "autocad", "aws", "azure",
    "c", "c++", "computer vision", "crm", "css", "datev", "dbt", "django", "docker", "editing",
    "embedded", "english", "excel", "figma", "forecasting", "german", "git", "go",
    "google analytics", "grpc", "html", "illustrator", "inglés", "interviews", "java",
    "javascript", "jira", "kafka", "kubernetes", "linux", "mathematics", "monitoring",
    "negociación", "negociação", "negotiation", "onboarding", "patient care", "payroll",
    "photoshop", "postgresql", "power bi", "python", "pytorch", "react", "recruiting", "redis",
    "revit", "roadmaps", "ros", "rtos", "rust", "salesforce", "sap", "scrum", "seo", "spanish",
    "spark", "spring", "sql", "statistics", "statistiques", "tableau", "terraform", "triage",
    "typescript", "vendas", "welding",
)  # fmt: skip
