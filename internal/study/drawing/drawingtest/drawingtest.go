// Package drawingtest checks figures: that their text lies within them.
package drawingtest

import (
	"fmt"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"

	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

// TextsFit checks that each text of a figure states how wide it is drawn, so that the viewer's font
// does not matter, and lies within the figure with that width, in both widths of figures; and that
// there are texts.
func TextsFit(t *testing.T, f *drawing.Figure) {
	t.Helper()
	for _, width := range []vg.Length{drawing.Narrow, drawing.Wide} {
		svg, err := f.SVG(width, 0)
		if err != nil {
			t.Fatal(err)
		}
		texts := strings.Split(string(svg), "<text ")
		if len(texts) < 6 {
			t.Errorf("%s has %d texts", f.Name, len(texts)-1)
		}
		for i, text := range texts[1:] {
			before := texts[i]
			group := before[max(strings.LastIndex(before, "<g"), 0):]
			fits(t, f, width, text, strings.Contains(group, "rotate"))
		}
	}
}

// fits checks that a text lies within a figure; the text may be turned.
func fits(t *testing.T, f *drawing.Figure, width vg.Length, text string, turned bool) {
	t.Helper()
	var length, x, y float64
	if _, err := fmt.Sscanf(text, `textLength="%g" lengthAdjust="spacingAndGlyphs" x="%g" y="%g"`,
		&length, &x, &y); err != nil {
		t.Fatalf("%s: <text %s: %v", f.Name, text, err)
	}
	high, room := float64(f.Height(width)), float64(width)
	if turned {
		room = high
	} else if y > 0.01 || y < -high-0.01 {
		t.Errorf("%s, %v wide: at %.5g of %.5g from below: %s", f.Name, width, -y, high, text)
	}
	if x < -0.01 || x+length > room+0.01 {
		t.Errorf("%s, %v wide: from %.5g to %.5g of %.5g: %s", f.Name, width, x, x+length, room, text)
	}
}
