package learning

import (
	"strings"
	"testing"
)

// answered returns what follows for the only dataset of messages, of which each is of a dataset of
// 100 items.
func answered(t *testing.T, messages ...string) Answer {
	t.Helper()
	var s Seen
	for _, m := range messages {
		m = strings.Replace(m, "{", `{"dataset": {"number": 1, "class": "D", "length": 100}, `, 1)
		if err := s.Take([]byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	answers := s.Answers()
	if len(answers) != 1 {
		t.Fatalf("%d answers", len(answers))
	}
	return answers[0]
}

// item is the message of an item that opens files of 10 bytes.
func item(index string, paths ...string) string {
	files := make([]string, len(paths))
	for i, path := range paths {
		path, how, _ := strings.Cut(path, "|")
		files[i] = `{"path": "` + path + `", "size": 10, "how": "` + how + `"}`
	}
	return `{"event": "item", "index": ` + index + `, "files": [` + strings.Join(files, ", ") + `]}`
}

// named is the message that an expression names files of an item.
func named(index, text string, paths ...string) string {
	return `{"event": "named", "index": ` + index + `, "expressions": [{"text": "` + text +
		`", "names": 1, "paths": ["` + strings.Join(paths, `", "`) + `"]}]}`
}

func TestAnExpressionIsProposedOnlyIfItWasEvaluatedForAllItems(t *testing.T) {
	seen := []string{
		item("0", "/a"), item("1", "/b"), item("2", "/c"),
		named("0", "d.p[i]", "/a"), named("1", "d.p[i]", "/b"),
	}
	if a := answered(t, seen...); a.Proposal != "" || a.Files.Served != 0 {
		t.Errorf("proposed %q, %d files served; it was not evaluated for item 2", a.Proposal,
			a.Files.Served)
	}
	a := answered(t, append(seen, named("2", "d.p[i]", "/c"))...)
	if a.Proposal != "files=lambda i: d.p[i]" || a.Verified != 3 || a.Files != (Share{3, 3}) {
		t.Errorf("%+v", a)
	}
}

func TestAnExpressionThatRaisesIsNotProposed(t *testing.T) {
	seen := []string{
		item("0", "/a"), item("1", "/b"), named("0", "d.p[i]", "/a"), named("1", "d.p[i]", "/b"),
	}
	for name, raised := range map[string]string{
		"an item that is looked at": `{"event": "named", "index": 1, "expressions": ` +
			`[{"text": "d.p[i]", "raised": "KeyError"}]}`,
		"another item": `{"event": "others", "text": "d.p[i]", "raised": "KeyError"}`,
	} {
		if a := answered(t, append(seen, raised)...); a.Proposal != "" {
			t.Errorf("%s: proposed %q", name, a.Proposal)
		}
	}
}

func TestTheExpressionIsProposedThatNamesMost(t *testing.T) {
	a := answered(t,
		item("0", "/0"), item("1", "/1"), item("2", "/02"),
		named("0", "a", "/0"), named("1", "a", "/1"), named("2", "a"),
		named("0", "b", "/0"), named("1", "b", "/1"), named("2", "b", "/02"),
		named("0", "c"), named("1", "c"), named("2", "c", "/02"))
	if a.Proposal != "files=lambda i: b" || a.Verified != 3 {
		t.Errorf("%+v", a)
	}
}

func TestAFileThatOneItemAloneReadsIsNoReasonForAnExpression(t *testing.T) {
	a := answered(t, item("0", "/0"), item("1", "/1"), named("0", "x", "/0"), named("1", "x"))
	if a.Proposal != "" || len(a.Left) != 1 || a.Left[0].Files != 2 {
		t.Errorf("%+v", a)
	}
}

func TestReportsOfFilesThatAnotherProcessOpensAreDiscarded(t *testing.T) {
	a := answered(t, item("0", "/0", "/1|below Python"), item("1", "/1"))
	if a.Files.All != 2 {
		t.Errorf("%d files", a.Files.All)
	}
	a = answered(t, item("0", "/0|below Python"), item("1", "/1|below Python"),
		named("0", "x", "/0"), named("1", "x", "/1"))
	if a.Files != (Share{0, 2}) || a.Proposal != "" || a.Otherwise != "files=lambda i: x" {
		t.Errorf("%+v", a)
	}
}

func TestItemsThatAreMadeAgain(t *testing.T) {
	a := answered(t, item("7", "/a"), item("7", "/b"), item("8", "/c"), item("8", "/c"),
		`{"event": "item", "index": 9, "failed": "ValueError"}`,
		`{"event": "item", "index": 9, "failed": "ValueError"}`)
	if a.Varies.Items != 1 || a.Varies.Of != 3 || a.Varies.Index != 7 {
		t.Errorf("varies: %+v", a.Varies)
	}
	if len(a.Failed) != 1 || a.Failed[0].Items != 1 || a.Failed[0].Index != 9 {
		t.Errorf("failed: %+v", a.Failed)
	}
	if a.Items != 3 || a.Looks != 6 {
		t.Errorf("%d items, %d looks", a.Items, a.Looks)
	}
}

func TestWrongMessagesAreRefused(t *testing.T) {
	for _, m := range []string{"", "[]", `{"event": "other"}`} {
		if err := new(Seen).Take([]byte(m)); err == nil {
			t.Errorf("%q was taken", m)
		}
	}
}
