package coordinator

import (
	"fmt"
	"net"
	"testing"
)

// TestRefusals: a flood is told of once per host, and of a few hosts.
func TestRefusals(t *testing.T) {
	var r refusals
	told := 0
	for host := range 100 {
		for port := range 100 {
			if r.first(&net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("10.0.0.%d", host)), Port: port}) {
				told++
			}
		}
	}
	if told != mostRefusals {
		t.Errorf("%d are told of, not %d", told, mostRefusals)
	}
}
