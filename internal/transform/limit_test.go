package transform

import (
	"errors"
	"fmt"
	"testing"
)

// lists are transforms that take memory in different places.
var lists = []string{
	"Resize((20, 30))", "RandomHorizontalFlip(1), Resize((150, 100), 'nearest'), CenterCrop(9)",
	"Pad(100, padding_mode='reflect'), CenterCrop(9)",
	"Grayscale(), Resize((20, 30))", "Resize(300), CenterCrop(200), Resize((3, 3))",
	"Views([[Resize(300), CenterCrop(200)], [Pad(9), CenterCrop(5)], [CenterCrop(7), Grayscale()]])",
	"CenterCrop(9)", "Ragged()", "Resize(200), Pad(3), Ragged()",
}

// TestRequestedMemorySuffices: as long as a sample may take too little, each error requests more,
// until it has what it needs, and then becomes what it does without a limit.
func TestRequestedMemorySuffices(t *testing.T) {
	samples := map[string][]byte{"JPEG": encodedJPEG(t, 320, 240), "PNG": encodedPNG(t, 320, 240)}
	for _, list := range lists {
		for name, src := range samples {
			free, w := compiled(t, list).Worker(), compiled(t, list).Worker()
			want, _, err := applied(t, free, src, Key{})
			if err != nil {
				t.Fatal(list, err)
			}
			memory := int64(1)
			for tries := 0; ; tries++ {
				w.Limit(memory, 1<<30, 0)
				got, _, err := applied(t, w, src, Key{})
				if err == nil {
					if string(got) != string(want) {
						t.Errorf("%s, %s: something else with %d bytes", list, name, memory)
					}
					break
				}
				var short *MemoryError
				if !errors.As(err, &short) || short.Need <= memory || tries > 20 {
					t.Errorf("%s, %s with %d bytes, after %d tries: %v", list, name, memory, tries,
						err)
					break
				}
				memory = short.Need
			}
			free.Close()
			w.Close()
		}
	}
}

// TestLargeSampleDoesNotAffectTheNext: what a sample may take does not depend on the one before.
func TestLargeSampleDoesNotAffectTheNext(t *testing.T) {
	small, large := encodedPNG(t, 64, 48), encodedPNG(t, 400, 300)
	for _, list := range lists {
		w := compiled(t, list).Worker()
		memory := need(t, w, small)
		for _, src := range [][]byte{large, small, large[:len(large)/2], small} {
			w.Limit(1<<30, 1<<30, 0)
			_, _, _ = applied(t, w, src, Key{}) // one is damaged
			w.Limit(memory, 1<<30, 0)
			if _, _, err := applied(t, w, small, Key{}); err != nil {
				t.Errorf("%s: after %d bytes of file: %v", list, len(src), err)
			}
		}
		w.Close()
	}
}

// need is how many bytes a sample takes.
func need(t *testing.T, w *Worker, src []byte) int64 {
	t.Helper()
	for memory := int64(1); ; {
		w.Limit(memory, 1<<30, 0)
		_, _, err := applied(t, w, src, Key{})
		var short *MemoryError
		if !errors.As(err, &short) {
			if err != nil {
				t.Fatal(err)
			}
			return memory
		}
		if short.Need <= memory {
			t.Fatal(fmt.Errorf("with %d bytes: %w", memory, err))
		}
		memory = short.Need
	}
}
