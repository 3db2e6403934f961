package interleave_test

import (
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/interleave"
)

func TestPointsAreBeforeEachStatement(t *testing.T) {
	got, err := interleave.Points("a.go", `package a

//go:noinline
func small() { println() }

func f(c chan int) int {
	switch <-c {
	case 1:
		go func() { c <- 2 }()
	}
	for {
		select {
		case <-c:
			return 1
		default:
		}
	}
}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := `package a; import point__ "github.com/hdmlp/hdmlp/internal/clustersim/interleave/point"

//go:noinline
func small() { println() }

func f(c chan int) int {
	point__.Here(); switch <-c {
	case 1:
		point__.Here(); go func() { point__.Here(); c <- 2 }()
	}
	point__.Here(); for {
		point__.Here(); select {
		case <-c:
			point__.Here(); return 1
		default:
		}
	}
}
`
	if got != want {
		t.Errorf("got:\n%s", got)
	}
}

func TestAPackageWithoutStatementsStaysAsItIs(t *testing.T) {
	const text = "package a\n\nconst b = 1\n"
	if got, err := interleave.Points("a.go", text); got != text || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
