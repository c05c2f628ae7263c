"""Write cases.jsonl, dates of well-known events in three notations, and replies.yaml, the stand-in of a model.

The stand-in does literally what the prompt says, and nothing else. Without the sentence about the day it reads
03/04/1949 as the fourth of March. For a real model, leave out --replies.
"""

import json
import re
from datetime import date
from pathlib import Path

EVENTS = """
1957-03-25 The Treaty of Rome was signed on
1949-04-04 The North Atlantic Treaty was signed on
1957-10-04 Sputnik 1 was launched on
1961-04-12 Yuri Gagarin flew around the Earth on
1969-07-20 Two people landed on the Moon on
1989-11-09 The Berlin Wall fell on
1945-05-08 The war in Europe ended on
1903-12-17 The Wright brothers flew on
1912-04-15 The Titanic sank on
1914-06-28 The shots of Sarajevo were fired on
1918-11-11 The armistice of Compiègne was signed on
1927-05-21 Charles Lindbergh landed in Paris on
1929-10-29 Share prices in New York fell on
1941-12-07 Pearl Harbor was attacked on
1944-06-06 The Allies landed in Normandy on
1945-10-24 The Charter of the United Nations came into force on
1947-08-15 India became independent on
1948-12-10 The Declaration of Human Rights was adopted on
1953-05-29 Two people reached the top of Everest on
1955-12-01 Rosa Parks kept her seat on
1963-08-28 Martin Luther King spoke of his dream on
1963-06-16 Valentina Tereshkova flew into space on
1965-03-18 Alexei Leonov left his capsule on
1966-02-03 Luna 9 landed on the Moon on
1967-12-03 The first human heart was transplanted on
1971-04-19 The first space station was launched on
1973-01-01 Denmark joined the European Communities on
1974-08-09 Richard Nixon resigned on
1975-07-17 Apollo and Soyuz docked on
1975-08-01 The Helsinki Final Act was signed on
1976-07-20 Viking 1 landed on Mars on
1977-09-05 Voyager 1 was launched on
1978-07-25 The first child of in vitro fertilisation was born on
1981-04-12 The first space shuttle was launched on
1985-07-13 Live Aid was held on
1986-01-28 The shuttle Challenger was lost on
1986-04-26 A reactor of Chernobyl exploded on
1990-02-11 Nelson Mandela was released on
1990-10-03 The two German states united on
1993-11-01 The Treaty of Maastricht came into force on
1994-05-06 The Channel Tunnel was opened on
1997-07-01 Hong Kong was handed over on
1998-04-10 The Good Friday Agreement was signed on
1999-01-01 The euro was introduced on
1911-12-14 Roald Amundsen reached the South Pole on
1922-11-04 The tomb of Tutankhamun was found on
1928-09-28 Penicillin was noticed on
1930-02-18 Pluto was discovered on
1936-12-11 Edward VIII abdicated on
1940-05-10 Winston Churchill became prime minister on
1942-12-02 The first reactor went critical on
1946-03-05 Winston Churchill spoke of an iron curtain on
1954-05-06 A mile was run in less than four minutes on
1956-10-23 The uprising in Hungary began on
1958-01-31 Explorer 1 was launched on
1962-02-20 John Glenn flew around the Earth on
1986-02-19 The first module of Mir was launched on
1990-04-24 The Hubble telescope was launched on
1998-11-20 The first module of the ISS was launched on
1919-06-28 The Treaty of Versailles was signed on
"""
# What the stand-in needs to be told, by the notation of a date.
NOTATIONS = {
    "{0.day} {0:%B %Y}": (),
    "{0:%d/%m/%Y}": ("day before the month",),
    "{0.day}.{0.month}.{0:%y}": ("day before the month", "20th century"),
}


def main(folder: Path) -> None:
    """Write both files."""
    cases, rules = [], []
    for number, line in enumerate(EVENTS.split("\n")[1:-1]):
        iso, _, event = line.partition(" ")
        day = date.fromisoformat(iso)
        notation, needed = list(NOTATIONS.items())[number % 3]
        text = f"{event} {notation.format(day)}."
        cases.append({"id": event.removesuffix(" on"), "inputs": text, "expected": iso})
        seen = re.escape(text)
        told = "".join(f"(?=.*{words})" for words in ("YYYY-MM-DD", *needed))
        rules.append({"prompt": f"(?s){told}.*{seen}", "replies": [iso]})
        wrong = day.replace(day=day.month, month=day.day) if needed and day.day <= 12 else day
        shown = f"{wrong:%Y-%m-%d}" if wrong != day else text.rsplit(" on ", 1)[1].rstrip(".")
        rules.append({"prompt": seen, "replies": [shown]})
    (folder / "cases.jsonl").write_text(
        "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases), encoding="utf-8"
    )
    (folder / "replies.yaml").write_text(
        "".join(f"- {json.dumps(rule, ensure_ascii=False)}\n" for rule in rules), encoding="utf-8"
    )


if __name__ == "__main__":
    main(Path(__file__).parent)
