// Texts that would be code if any of them became markup.

const RUN = "globalThis.ran=1";

/** Markup that runs, in the ways that browsers have. */
export const MARKUP = [
  `<script>${RUN}</script>`, `<ScRiPt>${RUN}</sCrIpT>`, `<script src="/x.js"></script>`, `"><script>${RUN}</script>`,
  `</script><script>${RUN}</script>`, `<img src=x onerror=${RUN}>`, `<img src="/nothing" onerror="${RUN}">`, `<IMG SRC=x ONERROR=${RUN}>`,
  `'"><img src=x onerror=${RUN}>`, `<svg onload=${RUN}>`, `<svg><script>${RUN}</script></svg>`, `<svg><animate onbegin=${RUN} attributeName=x dur=1s>`,
  `<svg><a href="javascript:${RUN}"><text>x</text></a></svg>`, `<math><mtext><img src=x onerror=${RUN}></mtext></math>`, `<body onload=${RUN}>`,
  `<iframe src="javascript:${RUN}"></iframe>`, `<iframe srcdoc="<script>parent.ran=1</script>"></iframe>`, `<object data="javascript:${RUN}"></object>`,
  `<embed src="javascript:${RUN}">`, `<details open ontoggle=${RUN}><summary>x</summary></details>`, `<input autofocus onfocus=${RUN}>`,
  `<select autofocus onfocus=${RUN}></select>`, `<textarea autofocus onfocus=${RUN}></textarea>`, `</textarea><img src=x onerror=${RUN}>`,
  `</title><img src=x onerror=${RUN}>`, `<video><source onerror=${RUN}></video>`, `<audio src=x onerror=${RUN}></audio>`, `<marquee onstart=${RUN}>x</marquee>`,
  `<form action="javascript:${RUN}"><button>x</button></form>`, `<button formaction="javascript:${RUN}">x</button>`, `<isindex type=image src=x onerror=${RUN}>`,
  `<link rel=stylesheet href="https://elsewhere.example/x.css">`, `<style>@import "https://elsewhere.example/x.css";</style>`,
  `<div style="background:url(https://elsewhere.example/x)">x</div>`, `<base href="https://elsewhere.example/">`, `<meta http-equiv=refresh content="0;url=https://elsewhere.example/">`,
  `<template><script>${RUN}</script></template>`, `<noscript><p title="</noscript><img src=x onerror=${RUN}>"></noscript>`,
  `<a href="javascript:${RUN}">x</a>`, `<a href="data:text/html,<script>${RUN}</script>">x</a>`, `<img src="https://elsewhere.example/x.png">`,
  `<!--><img src=x onerror=${RUN}>-->`, `<![CDATA[<img src=x onerror=${RUN}>]]>`, `&lt;img src=x onerror=${RUN}&gt;`, `&#60;script&#62;${RUN}&#60;/script&#62;`,
  `\u003cimg src=x onerror=${RUN}\u003e`, `<\u0000script>${RUN}</script>`, `\u202e<img src=x onerror=${RUN}>`, `<xss id=x tabindex=1 onfocus=${RUN}></xss>`,
  `<img name=getElementById src=x>`, `<form id=messages><input name=append></form>`, "{{constructor.constructor('globalThis.ran=1')()}}", `\${${RUN}}`, `__proto__`, `constructor`,
];
/** Targets of links, which Markdown could make live. */
const TARGETS = [
  `javascript:${RUN}`, `JaVaScRiPt:${RUN}`, ` javascript:${RUN}`, `java\tscript:${RUN}`, `\u0001javascript:${RUN}`, `javascript://x/%0a${RUN}`, `vbscript:${RUN}`,
  `data:text/html,<script>${RUN}</script>`, `data:text/html;base64,PHNjcmlwdD4=`, `blob:https://elsewhere.example/x`, `file:///etc/passwd`, `//elsewhere.example/x`,
  `https://x"onmouseover="${RUN}`, `https://x'onfocus='${RUN}`, `feed:javascript:${RUN}`,
];
const LINKS = TARGETS.flatMap((target) => [`[x](${target})`, `![x](${target})`, `<${target}>`, `[x](<${target}>)`]);
export const CORPUS = [...MARKUP, ...LINKS];
