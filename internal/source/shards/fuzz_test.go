package shards

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzJournal has any journal beside the shards of an interrupted run, of which some are missing or
// hidden. A run refuses it, as input that the user can put right, and leaves all shards; or it
// completes them, and they are those of a run that was not interrupted.
func FuzzJournal(f *testing.F) {
	src := open(f, many(20)...)
	l := layout(f, src, Options{})
	whole := filepath.Join(f.TempDir(), "whole")
	l.into(f, src, whole)
	want := filesOf(f, whole)
	journal := want[JournalName]
	lines := strings.SplitAfter(journal, "\n")
	f.Add([]byte(journal), uint8(0), uint8(0))
	f.Add([]byte(lines[0]), uint8(0xff), uint8(0))
	f.Add([]byte(lines[0][:20]), uint8(0xff), uint8(0))
	f.Add([]byte(lines[0]+lines[1]), uint8(0xff), uint8(1))
	f.Add([]byte(lines[0]+lines[1]+lines[2][:30]), uint8(0xfe), uint8(2))
	f.Add([]byte(journal+lines[1]), uint8(0), uint8(0))
	f.Add([]byte(lines[0]+lines[2]+lines[1]), uint8(0), uint8(0))
	f.Add([]byte("{}\n[]\n\x00"), uint8(0), uint8(0))
	f.Fuzz(func(t *testing.T, journal []byte, missing, parts uint8) {
		dir := t.TempDir()
		files := maps.Clone(want)
		files[JournalName] = string(journal)
		for i, s := range l.Shards() {
			if parts>>(i%8)&1 == 1 {
				files[hidden(s.Name)] = files[s.Name]
			}
			if missing>>(i%8)&1 == 1 {
				delete(files, s.Name)
			}
		}
		for name, data := range files {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644))
		}
		_, err := l.Write(t.Context(), src, dir, WriteOptions{Streams: 2, Memory: 1 << 20})
		got := filesOf(t, dir)
		delete(got, JournalName)
		if err == nil {
			complete := maps.Clone(want)
			delete(complete, JournalName)
			for _, s := range l.Shards() { // what an earlier run hid, and no line is about
				delete(got, hidden(s.Name))
			}
			if diff := cmp.Diff(complete, got); diff != "" {
				t.Error(diff)
			}
			return
		}
		if !errors.Is(err, ErrInput) {
			t.Errorf("%v", err)
		}
		for _, s := range l.Shards() {
			if data, is := got[s.Name]; is && data != want[s.Name] {
				t.Errorf("%s has other bytes", s.Name)
			}
			if _, was := files[s.Name]; was && got[s.Name] == "" {
				t.Errorf("%s is gone", s.Name)
			}
		}
	})
}
