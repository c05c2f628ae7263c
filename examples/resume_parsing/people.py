"""Invented people, each with a layout and a language: what their resumes are made from, and the
right answers."""

from __future__ import annotations

from typing import Any, NamedTuple


class Person(NamedTuple):
    """A person; `jobs` are (title, company, from, to), `schools` (degree, school, year); a `to` of 0
    is today, an empty field is one that the resume does not give."""

    name: str
    email: str
    phone: str
    language: str
    layout: str
    skills: str
    jobs: list[tuple[str, str, int, int]]
    schools: list[tuple[str, str, int]]

    def expected(self) -> dict[str, Any]:
        """Return the fields that a parser should find."""
        return {
            "name": self.name,
            "email": self.email,
            "phone": self.phone,
            "skills": [item.strip() for item in self.skills.split(",") if item.strip()],
            "experience": [
                {"title": title, "company": company, "from": start, "to": end or None}
                for title, company, start, end in self.jobs
            ],
            "education": [
                {"degree": degree, "school": school} for degree, school, _ in self.schools
            ],
        }


P = Person
PEOPLE = (
    P("Ana Ferreira", "ana.ferreira@example.com", "+351 912 345 678", "en", "text_classic",
      "Python, SQL, Airflow, dbt, Spark",
      [("Senior Data Engineer", "Brightwater Health", 2019, 0), ("Data Engineer", "Dune Logistics", 2015, 2019)],
      [("MSc Computer Science", "University of Porto", 2015)]),
    P("Jonas Weber", "jonas.weber@example.de", "+49 171 2345678", "de", "text_classic",
      "Java, Spring, Kubernetes, PostgreSQL",
      [("Softwareentwickler", "Granit Versicherung AG", 2017, 0), ("Werkstudent", "Hafen IT GmbH", 2014, 2016)],
      [("Bachelor Informatik", "Technische Universität Dresden", 2017)]),
    P("Claire Dubois", "claire.dubois@example.fr", "06 12 34 56 78", "fr", "text_underlined",
      "Comptabilité, Excel, SAP, Audit",
      [("Responsable comptable", "Banque du Nord", 2016, 0), ("Comptable", "Cabinet Laurier", 2010, 2016)],
      [("Master Finance", "Université de Lyon", 2010)]),
    P("Miguel Torres", "mtorres@example.es", "+34 600 123 456", "es", "text_compact",
      "Excel, Power BI, SQL, Negociación",
      [("Analista de datos", "Energía Clara", 2018, 0), ("Becario", "Consultora Vega", 2017, 2018)],
      [("Grado en Economía", "Universidad de Sevilla", 2017)]),
    P("Priya Nair", "priya@nair.example.org", "(415) 555-0134", "en", "text_prose",
      "Python, Statistics, Tableau",
      [("Data Analyst", "Foxglove Travel", 2018, 0), ("Junior Analyst", "Acorn Retail", 2015, 2018)],
      [("BSc Mathematics", "University of Leeds", 2015)]),
    P("Tomáš Novák", "tomas.novak@example.cz", "+420 777 123 456", "en", "text_columns",
      "Linux, Terraform, AWS, Docker, Monitoring",
      [("Site Reliability Engineer", "Cobalt Games", 2020, 0), ("System Administrator", "Ember Media", 2014, 2020)],
      [("Diploma in Informatics", "Charles University", 2013)]),
    P("Sofia Rossi", "sofia.rossi@example.it", "+39 320 1234567", "it", "text_labels",
      "Photoshop, Illustrator, Figma, Tipografia",
      [("Grafica senior", "Studio Lago", 2015, 0)],
      [("Laurea in Design", "Politecnico di Milano", 2014)]),
    P("Bram de Vries", "bram@devries.example.nl", "+31 6 12345678", "nl", "text_markdown",
      "React, TypeScript, CSS, Accessibility",
      [("Frontend Developer", "Haven Digitaal", 2018, 0), ("Webontwikkelaar", "Tulp Media", 2014, 2018)],
      [("Bachelor Informatica", "Universiteit Utrecht", 2014)]),
    P("Grace O'Neill", "grace.oneill@example.ie", "+353 85 123 4567", "en", "text_pipes",
      "Patient care, Triage, ECG, Medication",
      [("Staff Nurse", "St. Brigid Hospital", 2016, 0), ("Nurse", "Westport Clinic", 2012, 2016)],
      [("BSc Nursing", "University College Dublin", 2012)]),
    P("Rui Almeida", "rui.almeida@example.pt", "", "pt", "text_markdown",
      "Vendas, CRM, Negociação, Excel",
      [("Gestor de vendas", "Porto Azul Lda", 2017, 0)],
      [("Licenciatura em Gestão", "Universidade de Coimbra", 2016)]),
    P("Emma Lindqvist", "emma.lindqvist@example.se", "+46 70 123 45 67", "en", "text_company_first",
      "Product discovery, Roadmaps, SQL, Interviews",
      [("Product Manager", "Nordljus Energy", 2019, 0), ("Business Analyst", "Fjord Insurance", 2014, 2019)],
      [("MSc Industrial Engineering", "Lund University", 2014)]),
    P("Oliver Grant", "oliver.grant@example.co.uk", "020 7946 0123", "en", "text_dates_below",
      "Carpentry, Joinery, Site safety",
      [("Lead Carpenter", "Granite Builders", 2013, 0), ("Carpenter", "Harbour Homes", 2008, 2013)],
      []),
    P("Lena Fischer", "lena.fischer@example.at", "+43 664 1234567", "de", "html_lists",
      "Marketing, SEO, Google Analytics, Texten",
      [("Marketingleiterin", "Alpenblick Tourismus GmbH", 2018, 0), ("Redakteurin", "Verlag Morgen", 2013, 2018)],
      [("Magister Publizistik", "Universität Wien", 2013)]),
    P("David Kim", "david.kim@example.com", "+1 206 555 0187", "en", "html_lists",
      "Go, Kubernetes, gRPC, PostgreSQL, Redis",
      [("Backend Developer", "Harbour Banking", 2021, 0), ("Software Engineer", "Acorn Games", 2017, 2021)],
      [("BSc Computer Science", "University of Washington", 2017)]),
    P("Marie Laurent", "marie.laurent@example.fr", "+33 6 98 76 54 32", "fr", "html_table",
      "Python, PyTorch, Statistiques, SQL",
      [("Data Scientist", "Santé Horizon", 2019, 0), ("Ingénieure d'études", "Institut Calcul", 2016, 2019)],
      [("Doctorat en Mathématiques", "Université de Grenoble", 2016)]),
    P("Hannah Müller", "h.mueller@example.de", "030 1234567", "de", "html_table",
      "Buchhaltung, DATEV, Excel",
      [("Buchhalterin", "Seeblick Hotels", 2012, 0)],
      [("Ausbildung Bürokauffrau", "Berufsschule Rostock", 2011)]),
    P("Ben Carter", "ben@carter.example.com", "(212) 555-0199", "en", "html_definitions",
      "Negotiation, Salesforce, Forecasting, Spanish",
      [("Sales Director", "Brightwater Energy", 2015, 0), ("Account Executive", "Dune Travel", 2009, 2015)],
      [("BA Economics", "Boston College", 2009)]),
    P("Yuki Tanaka", "yuki.tanaka@example.jp", "+81 90 1234 5678", "en", "html_breaks",
      "C++, Computer vision, ROS, Linux",
      [("Robotics Engineer", "Granite Robotics", 2018, 0), ("Research Assistant", "Kyoto Lab", 2016, 2018)],
      [("MEng Robotics", "Kyoto University", 2016)]),
    P("Carlos Mendes", "carlos.mendes@example.pt", "+351 933 222 111", "pt", "html_breaks",
      "Cozinha, Pastelaria, Gestão de stocks",
      [("Chef de cozinha", "Restaurante Maré", 2016, 0), ("Cozinheiro", "Hotel Farol", 2010, 2016)],
      [("Curso de Cozinha", "Escola de Hotelaria do Porto", 2010)]),
    P("Ingrid Hansen", "ingrid.hansen@example.no", "+47 912 34 567", "en", "html_definitions",
      "Teaching, Curriculum design, Mathematics",
      [("Mathematics Teacher", "Oslo Middle School", 2011, 0)],
      [("MA Education", "University of Oslo", 2011)]),
    P("Noah Schmidt", "", "+49 151 98765432", "de", "html_lists",
      "C, Embedded, RTOS, Python",
      [("Embedded-Entwickler", "Motorwerk Süd GmbH", 2016, 0)],
      [("Master Elektrotechnik", "Technische Universität München", 2016)]),
    P("Isabel Ortega", "isabel.ortega@example.es", "+34 655 987 654", "es", "html_table",
      "Derecho laboral, Contratos, Inglés",
      [("Abogada", "Bufete Sol y Mar", 2014, 0), ("Pasante", "Bufete Norte", 2012, 2014)],
      [("Grado en Derecho", "Universidad de Granada", 2012)]),
    P("Aisha Rahman", "aisha.rahman@example.com", "+44 7700 900123", "en", "pdf_single",
      "Python, Django, PostgreSQL, Redis, Docker",
      [("Senior Backend Developer", "Ember Banking", 2018, 0), ("Web Developer", "Cobalt Media", 2013, 2018)],
      [("BSc Software Engineering", "University of Glasgow", 2013)]),
    P("Luca Bianchi", "luca.bianchi@example.it", "+39 347 7654321", "it", "pdf_single",
      "AutoCAD, Revit, Gestione cantieri",
      [("Ingegnere civile", "Costruzioni Arno", 2012, 0), ("Tirocinante", "Studio Ponte", 2011, 2012)],
      [("Laurea in Ingegneria", "Università di Bologna", 2011)]),
    P("Sarah Johnson", "sarah.johnson@example.com", "(312) 555-0142", "en", "pdf_left_column",
      "Recruiting, Onboarding, Payroll, Employment law",
      [("HR Manager", "Acorn Logistics", 2017, 0), ("HR Assistant", "Foxglove Retail", 2012, 2017)],
      [("BA Psychology", "University of Chicago", 2012)]),
    P("Pieter Jansen", "pieter.jansen@example.nl", "+31 6 87654321", "nl", "pdf_left_column",
      "Lassen, Draaien, Frezen",
      [("Machinebankwerker", "Staal Noord BV", 2010, 0)],
      [("Diploma Metaaltechniek", "Hogeschool Rotterdam", 2009)]),
    P("Julie Martin", "julie.martin@example.fr", "+33 7 11 22 33 44", "fr", "pdf_right_column",
      "Gestion de projet, Scrum, Jira, Anglais",
      [("Chef de projet", "Atelier Numérique", 2018, 0), ("Assistante", "Agence Soleil", 2014, 2018)],
      [("Licence de Gestion", "Université de Nantes", 2014)]),
    P("Mark Stevens", "mark.stevens@example.com", "+1 503 555 0111", "en", "pdf_right_column",
      "Welding, Blueprint reading, Forklift",
      [("Welder", "Harbour Steel", 2009, 0), ("Apprentice Welder", "Dune Metalworks", 2006, 2009)],
      []),
    P("Elena Petrova", "elena.petrova@example.org", "+359 88 123 4567", "en", "pdf_spaced",
      "Translation, Proofreading, Bulgarian, German",
      [("Translator", "Wordbridge Agency", 2013, 0), ("Interpreter", "City Court Sofia", 2010, 2013)],
      [("MA Linguistics", "Sofia University", 2010)]),
    P("Felix Braun", "felix.braun@example.ch", "+41 79 123 45 67", "de", "pdf_spaced",
      "Projektleitung, Scrum, Jira, Stakeholder",
      [("Projektleiter", "Matterhorn Bahn AG", 2015, 0), ("Berater", "Kanton Beratung", 2011, 2015)],
      [("Master Betriebswirtschaft", "Universität Zürich", 2011)]),
    P("Chloe Bennett", "chloe.bennett@example.com", "+1 646 555 0177", "en", "pdf_prose",
      "Copywriting, Editing, SEO",
      [("Content Editor", "Ember Travel", 2019, 0), ("Copywriter", "Acorn Media", 2016, 2019)],
      [("BA English", "Columbia College", 2016)]),
    P("Samuel Osei", "samuel.osei@example.com", "+233 24 123 4567", "en", "pdf_single",
      "Solar installation, Wiring, Safety audits",
      [("Electrician", "Cobalt Energy", 2014, 0)],
      [("Certificate in Electrical Installation", "Accra Technical Institute", 2013)]),
)  # fmt: skip
