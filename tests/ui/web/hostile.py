"""A hundred outputs that try to be more than text."""

from __future__ import annotations

_MARKUP = (
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    "<svg onload=window.hit=1>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<a href='javascript:window.hit=1'>x</a>",
    "<body onload=window.hit=1>",
    "<details open ontoggle=window.hit=1>",
    "<math><mtext></table><mglyph><style><img src=x onerror=window.hit=1>",
    "<template><script>window.hit=1</script></template>",
    "<link rel=stylesheet href=http://192.0.2.1/x.css>",
    "<meta http-equiv=refresh content='0;url=http://192.0.2.1/'>",
    "<base href=http://192.0.2.1/>",
    "<object data=http://192.0.2.1/x></object>",
    "<embed src=http://192.0.2.1/x>",
    "<video><source onerror=window.hit=1></video>",
    "<form action=http://192.0.2.1/><button autofocus onfocus=window.hit=1>",
    "<style>@import 'http://192.0.2.1/x.css';</style>",
    "<img src='http://192.0.2.1/pixel.png'>",
    "![x](http://192.0.2.1/pixel.png)",
    "[x](javascript:window.hit=1)",
)
_WAYS = (
    lambda text: text,
    lambda text: f"</pre></td></tr></table>{text}",
    lambda text: f"\"'>{text}",
    lambda text: f"--></textarea></title></style>{text}",
    lambda text: f"{{{{ 7*7 }}}}{{% raw %}}\u202e\x1b[31m{text}\ndata: {text}\n\nid: 99\n",
)
OUTPUTS = [way(text) for way in _WAYS for text in _MARKUP]
