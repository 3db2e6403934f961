package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/study/learning"
)

// printLearned prints what was learned.
func printLearned(out io.Writer, l learned) {
	for _, note := range l.Notes {
		fmt.Fprintln(out, "hdmlp learn: "+human.Text(note))
	}
	for i, a := range l.Datasets {
		if i > 0 {
			fmt.Fprintln(out)
		}
		printSeen(out, a)
	}
}

// printSeen prints what follows for a dataset.
func printSeen(out io.Writer, a learning.Answer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %-11s %s\n", name, human.Text(fmt.Sprintf(format, args...)))
	}
	length := "without a length"
	if a.Length >= 0 {
		length = count(a.Length, "item")
	}
	times := ""
	if a.Looks > a.Items {
		times = fmt.Sprintf(", %s times", thousands(a.Looks))
	}
	fmt.Fprintf(out, "%s (%s), %s looked at%s\n", human.Name(a.Class), length, thousands(a.Items),
		times)
	line("files", "%.4g per item, %s", a.PerItem.Files, byteSize(a.PerItem.Bytes))
	for _, f := range a.Failed {
		line("failed", "%s raised %s, first item %d", count(f.Items, "item"), f.Class, f.Index)
	}
	if a.Varies.Items > 0 {
		line("varies", "%s of %s made several times opened other files later, such as item %d: %s",
			thousands(a.Varies.Items), thousands(a.Varies.Of), a.Varies.Index,
			pathList(a.Varies.Example))
	}
	printProposal(line, a)
	if a.Files.All > 0 || a.Content.All > 0 {
		line("served", "%s of %s, %s of %s", servedShare(a.Files), count(int(a.Files.All), "file"),
			servedShare(a.Content), byteSize(float64(a.Content.All)))
	}
	for _, l := range a.Left {
		printLeft(line, l)
	}
}

// printProposal prints what is proposed, and what was verified.
func printProposal(line func(name, format string, args ...any), a learning.Answer) {
	switch {
	case a.Native:
		line("proposed", "ht.DataLoader(dataset): HDMLP reads this class without files=")
	case a.Proposal != "":
		line("proposed", "ht.DataLoader(dataset, %s)", a.Proposal)
		line("verified", "%s of %s items: it names all files that they open and that can be served",
			thousands(a.Verified), thousands(a.Verifiable))
		for _, e := range a.Expressions {
			if e.Names > 1 {
				line("", "%s names %d files, of which an item opens some", e.Text, e.Names)
			}
			if e.Exist < e.Of {
				line("", "%s: for %d of %d items of the whole dataset there is no such file", e.Text,
					e.Of-e.Exist, e.Of)
			}
		}
	case a.Verifiable > 0:
		line("proposed", "nothing: no attribute of the dataset has the paths; write a function:")
		line("", "def files_of(i):")
		line("", "    return ...  # of item %d: %s", a.Example.Index, pathList(a.Example.Paths))
		line("", "ht.DataLoader(dataset, files=files_of)")
	case a.Files.All > 0 || a.Content.All > 0:
		line("proposed", "nothing: no file is opened so that files= could serve it")
	default:
		line("proposed", "nothing: items open no files")
	}
	if a.Otherwise != "" && !a.Native {
		line("otherwise", "ht.DataLoader(dataset, %s), if all files are opened with open(); or a "+
			"class of ht.FileDataset whose files_of(i) returns these", a.Otherwise)
	}
}

// printLeft prints what is not served.
func printLeft(line func(name, format string, args ...any), l learning.Left) {
	text := byteSize(float64(l.Bytes)) + " " + l.Why
	if l.Files > 0 {
		text = count(int(l.Files), "file") + ", " + text
	}
	if l.Example != "" {
		text += ", such as " + human.Name(l.Example)
	}
	if l.Advice != "" {
		text += ": " + l.Advice
	}
	line("not served", "%s", text)
}

// servedShare formats how much of something is served.
func servedShare(s learning.Share) string {
	if s.All == 0 {
		return "0 %"
	}
	return human.Percent(float64(s.Served) / float64(s.All))
}

// pathList lists some paths.
func pathList(paths []string) string {
	const most = 4
	var texts []string
	for _, path := range paths[:min(most, len(paths))] {
		texts = append(texts, human.Name(path))
	}
	if len(paths) > most {
		texts = append(texts, "...")
	}
	return strings.Join(texts, ", ")
}
