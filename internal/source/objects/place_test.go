package objects

import (
	"strings"
	"testing"
)

// TestURLsThatNameNoObjects: each would otherwise lead to other objects than it says, or be shown
// with a password.
func TestURLsThatNameNoObjects(t *testing.T) {
	places := []Place{{Schemes: []string{"s3"}}, {Schemes: []string{"https"}}}
	for url, want := range map[string]string{
		"s3://bucket":                   "",
		"s3://bucket/":                  "",
		"s3://bucket/a/b/":              "",
		"s3://bucket/a@b/..c":           "",
		"https://host/a":                "",
		"s3://bucket//a":                `part ""`,
		"s3://bucket/a//":               `part ""`,
		"s3://bucket/a//b":              `part ""`,
		"s3://bucket//":                 `part ""`,
		"s3://bucket/a/../b":            `part ".."`,
		"https://host/a/.":              `part "."`,
		"https://me:secret@host/a":      "names a user",
		"s3://key:secret@bucket/a":      "names a user",
		"s3://key:secret/more@bucket/a": "",
	} {
		_, err := ByURL(places, url)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error has the password: %v", url, err)
		}
	}
}

func TestShownURLsHaveNoSecrets(t *testing.T) {
	for url, want := range map[string]string{
		"https://me:secret@host/a?b=secret": "https://host/a",
		"https://host?secret":               "https://host",
		"s3://key:secret@bucket/a?b":        "s3://bucket/a?b",
		"s3://bucket/a@b":                   "s3://bucket/a@b",
		"/a/path?b":                         "/a/path?b",
	} {
		if got := Shown(url); got != want {
			t.Errorf("%s: %s, not %s", url, got, want)
		}
	}
}
