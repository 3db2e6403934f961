package model

import (
	"math"
	"testing"
)

// TestForms: forms take what samples leave, and only what is sent takes more of a link.
func TestForms(t *testing.T) {
	coefficients := Forms{Time: 0.5, Size: 1.2, Sent: true}
	pixels := Forms{Time: 0.2, Size: 4}
	for _, c := range []struct {
		forms          Forms
		held, capacity float64
		part, sent     float64
	}{
		{Forms{}, 10, 100, 0, 1},
		{coefficients, 10, 9, 0, 1},
		{coefficients, 10, 10, 0, 1},
		{coefficients, 10, 11, 0.5, 1.1},
		{coefficients, 10, 12, 1, 1.2},
		{coefficients, 10, 100, 1, 1.2},
		{coefficients, 0, 100, 0, 1},
		{pixels, 10, 25, 0.5, 1},
		{pixels, 10, 40, 1, 1},
		{Forms{Time: 0.5, Size: 1, Sent: true}, 10, 10, 1, 1},
		{Forms{Time: 0.5, Size: 1, Sent: true}, 10, 9, 0, 1},
	} {
		part := c.forms.Part(c.held, c.capacity)
		if sent := c.forms.SentSize(part); math.Abs(part-c.part) > 1e-9 ||
			math.Abs(sent-c.sent) > 1e-9 {
			t.Errorf("%+v with %v of %v: %v are forms, and %v are sent for each; want %v and %v",
				c.forms, c.held, c.capacity, part, sent, c.part, c.sent)
		}
	}
	if got := pixels.Needs(10); got != 40 {
		t.Errorf("10 MB of pixels need %v MB", got)
	}
	for _, f := range []Forms{
		{Time: 1.1, Size: 1},
		{Time: -1, Size: 1},
		{Time: 0.5},
		{Time: 0.5, Size: 0.9},
		{Size: 2},
		{Time: 0.5, Size: math.Inf(1)},
		{Time: math.NaN(), Size: 1},
		{Sent: true},
	} {
		if f.Validate() == nil {
			t.Errorf("%+v is possible", f)
		}
	}
	if err := pixels.Validate(); err != nil {
		t.Error(err)
	}
}
