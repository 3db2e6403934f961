package job

import (
	"errors"
	"testing"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

// TestMeeting: where node 0 is found, by launcher, configuration and loader.
func TestMeeting(t *testing.T) {
	for _, c := range []struct {
		address      string
		loader, port int // the configuration's port
		host         string
		want         int // -1: an error
	}{
		{"n0:29510", 0, 0, "n0", 29510},
		{":29510", 1, 0, "", 29514},
		{"[fe::1]:29510", 63, 0, "fe::1", 29762},
		{"n0:29510", 0, 7000, "n0", 7000},
		{"n0:29510", 2, 7000, "n0", 7008},
		{"n0:65532", 0, 0, "n0", 65532},
		{"n0:65533", 0, 0, "n0", 65533 - 32768}, // its last port would be too high
		{"n0:29510", 1, 65532, "n0", 65536 - 32768},
		{"n0:29510", 256, 0, "", -1},
		{"n0:29510", -1, 0, "", -1},
		{"n0:70000", 0, 0, "", -1},
		{"n0", 0, 0, "", -1},
	} {
		j := &Job{cfg: &config.Config{Port: c.port}}
		j.message.Cluster = &protocol.ClusterMessage{Address: c.address, Loader: c.loader}
		host, port, err := j.meeting()
		var said *protocol.ErrorMessage
		if c.want < 0 {
			if !errors.As(err, &said) || said.Kind != protocol.KindConfig {
				t.Errorf("%+v: %v", c, err)
			}
		} else if err != nil || host != c.host || port != c.want {
			t.Errorf("%+v: %s, %d, %v", c, host, port, err)
		}
	}
}
