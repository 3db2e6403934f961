package room

import "testing"

// TestNamesOfRooms: a room has its own name and that of its directory, and is taken once.
func TestNamesOfRooms(t *testing.T) {
	rooms, err := Chosen("plan/access,arena,store/arena,source/folder,source")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"access", "arena", "index", "source"}
	for k, r := range rooms {
		if k >= len(want) || r.Name != want[k] {
			t.Errorf("room %d is %s, want %v", k, r.Name, want)
		}
	}
	if len(rooms) != len(want) {
		t.Errorf("%d rooms, want %v", len(rooms), want)
	}
}
