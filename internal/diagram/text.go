package diagram

import (
	"fmt"
	"strings"
)

// DOT returns the graph in the language of Graphviz.
func (g *Graph) DOT() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n  label=%s; labelloc=t; fontname=\"sans-serif\";\n", quoted(g.Name), quoted(strings.TrimSpace(g.Name+"\n"+g.caption())))
	b.WriteString("  node [shape=box, style=rounded, fontname=\"sans-serif\"]; edge [fontname=\"sans-serif\", fontsize=10];\n")
	for i, n := range g.nodes {
		shape := ""
		if n.kind != step {
			shape = ", shape=plaintext"
		}
		fmt.Fprintf(&b, "  n%d [label=%s%s];\n", i, quoted(strings.Join(append([]string{n.name}, n.notes...), "\n")), shape)
	}
	for _, e := range g.edges {
		fmt.Fprintf(&b, "  n%d -> n%d [label=%s];\n", e.from, e.to, quoted(strings.Join(e.labels, "\n")))
	}
	b.WriteString("}\n")
	return b.String()
}

// quoted returns a string of DOT.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// Mermaid returns the graph as a flowchart for Markdown.
func (g *Graph) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	if c := g.caption(); c != "" {
		fmt.Fprintf(&b, "  %%%% %s: %s\n", g.Name, c)
	}
	for i, n := range g.nodes {
		open, shut := "[", "]"
		if n.kind != step {
			open, shut = "([", "])"
		}
		fmt.Fprintf(&b, "  n%d%s\"%s\"%s\n", i, open, escaped(append([]string{n.name}, n.notes...)), shut)
	}
	for _, e := range g.edges {
		fmt.Fprintf(&b, "  n%d -->|\"%s\"| n%d\n", e.from, escaped(e.labels), e.to)
	}
	return b.String()
}

// escaped returns lines as text of Mermaid.
func escaped(lines []string) string {
	return strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "\n", "<br/>").Replace(strings.Join(lines, "\n"))
}
