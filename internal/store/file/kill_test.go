package file_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

const victimDir = "HDMLP_TEST_VICTIM_DIR"

// victim puts samples until it is killed, and prints the ID of each.
func victim(dir string) {
	c, err := file.New(file.Options{Dir: dir, Capacity: 1 << 30, Reserve: 1, Disk: bigDisk})
	if err != nil {
		panic(err)
	}
	ds := storetest.Uniform(1, 100_000, 1000)
	s, err := c.Open(ds, 1<<29)
	if err != nil {
		panic(err)
	}
	for id := range ds.Samples {
		if err := keep(s, id, storetest.Bytes(ds, id)); err != nil {
			panic(err)
		}
		fmt.Println(id)
	}
}

func TestSamplesSurviveAKill(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), victimDir+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	const until = 1000
	lines := bufio.NewScanner(out)
	for n := 0; n < until && lines.Scan(); n++ {
	}
	if err := child.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()

	ds := storetest.Uniform(1, 100_000, 1000)
	c := newClass(t, dir, 1<<30) // the lock is free
	s := storetest.Open(t, c, ds, 1<<29)
	held := s.Held()
	if len(held) < until-64 {
		t.Fatalf("%d samples were put, %d are left; at most 64 may be missing", until, len(held))
	}
	dst := make([]byte, 1000)
	for i, id := range held {
		if int(id) != i {
			t.Fatalf("sample %d in place of %d", id, i)
		}
		if err := s.Read(int(id), dst); err != nil ||
			string(dst) != string(storetest.Bytes(ds, i)) {
			t.Fatalf("sample %d after the kill: %v", id, err)
		}
	}
	storetest.Put(t, s, ds, len(held))
	storetest.Close(t, s, c)
}
