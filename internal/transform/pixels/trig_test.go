package pixels

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os/exec"
	"testing"
)

// TestTrigonometry: angles in degrees give the bits of Python's sin, cos and tan. In Go, one in 100
// may differ, by the last bit: the C library does not round every result correctly.
func TestTrigonometry(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var angles []float64
	for i := range 100000 {
		degrees := (r.Float64() - 0.5) * 720
		if i < 721 {
			degrees = float64(i - 360)
		}
		angles = append(angles, degrees*(math.Pi/180))
	}
	text, err := json.Marshal(angles)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", "-c", "import json, sys\n"+
		"from math import cos, sin, tan\n"+
		"print(json.dumps([[sin(x), cos(x), tan(x)] for x in json.load(sys.stdin)]))")
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		t.Skip("no Python to compare with: ", err)
	}
	var want [][3]float64
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	bits, inGo := 0, 0
	for i, x := range angles {
		sin, cos := SinCos(x)
		if [3]float64{sin, cos, Tan(x)} != want[i] {
			bits++
		}
		s, c := sinCosGo(x)
		got := [3]float64{s.hi, c.hi, tanGo(x)}
		if got != want[i] {
			inGo++
		}
		for k, v := range got {
			if next := math.Nextafter(v, want[i][k]); next != want[i][k] {
				t.Errorf("of %v: %v, and Python has %v", x, got, want[i])
				break
			}
		}
	}
	t.Logf("%d of %d differ, %d in Go", bits, len(angles), inGo)
	if usesC && bits > 0 || inGo > len(angles)/100 {
		t.Errorf("%d of %d differ, %d in Go", bits, len(angles), inGo)
	}
}
