package coordinator

import (
	"fmt"
	"net"
	"testing"
)

// TestFloodOfConnectionsIsLoggedOncePerHost checks that a flood of connections is logged once per
// host, for a few hosts.
func TestFloodOfConnectionsIsLoggedOncePerHost(t *testing.T) {
	var r refusals
	told := 0
	for host := range 100 {
		for port := range 100 {
			if r.first(&net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("10.0.0.%d", host)), Port: port}) {
				told++
			}
		}
	}
	if told != maxRefusals {
		t.Errorf("%d refusals are logged, want %d", told, maxRefusals)
	}
}
