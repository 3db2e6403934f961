package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func from(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestPlaceFollowsFromVariables(t *testing.T) {
	for _, test := range []struct {
		name string
		vars map[string]string
		want Place
	}{
		{"nothing", nil, Place{Nodes: 1}},
		{
			"torchrun on one node",
			map[string]string{
				"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "GROUP_RANK": "0",
				"GROUP_WORLD_SIZE": "1", "MASTER_ADDR": "localhost",
			},
			Place{Nodes: 1, LocalRank: 1, Launcher: "torchrun"},
		},
		{
			"torchrun",
			map[string]string{
				"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "GROUP_RANK": "2",
				"GROUP_WORLD_SIZE": "4", "MASTER_ADDR": "node-0", "MASTER_PORT": "29500",
			},
			Place{4, 2, 1, "node-0", 29510, "torchrun"},
		},
		{
			"srun",
			map[string]string{
				"SLURM_PROCID": "1", "SLURM_STEP_ID": "3", "SLURM_JOB_ID": "77",
				"SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "1", "SLURM_LOCALID": "0",
				"SLURM_STEP_NODELIST": "gpu[03-04]",
			},
			Place{2, 1, 0, "gpu03", portOf("slurm-77.3"), "Slurm"},
		},
		{
			"an allocation of Slurm, without srun",
			map[string]string{"SLURM_NNODES": "2", "SLURM_NODEID": "0"},
			Place{Nodes: 1},
		},
		{
			"by hand",
			map[string]string{"HDMLP_NODES": "a:7000,b", "HDMLP_NODE": "1"},
			Place{2, 1, 0, "a", 7000, "HDMLP_NODES"},
		},
		{
			"addresses of IPv6",
			map[string]string{"HDMLP_NODES": "[fe80::1]:7000,fe80::2", "HDMLP_NODE": "0"},
			Place{2, 0, 0, "fe80::1", 7000, "HDMLP_NODES"},
		},
	} {
		got, err := Find(from(test.vars))
		if err != nil || got != test.want {
			t.Errorf("%s: %+v, %v; want %+v", test.name, got, err, test.want)
		}
	}
}

func TestContradictionsAreRefused(t *testing.T) {
	torch := map[string]string{"RANK": "0", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "2"}
	for want, vars := range map[string]map[string]string{
		"not where node 0 is": torch,
		"HDMLP_NODES names 3 nodes, but torchrun says that there are 2": {
			"RANK": "0", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "2", "HDMLP_NODES": "a,b,c",
		},
		"none of them is called as this host": {"HDMLP_NODES": "no-host-is-called-so,nor-so"},
		"there are only 2 nodes":              {"HDMLP_NODES": "a,b", "HDMLP_NODE": "2"},
		"the port must be":                    {"HDMLP_NODES": "a:0,b", "HDMLP_NODE": "0"},
	} {
		if _, err := Find(from(vars)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want %q", vars, err, want)
		}
	}
}

func TestFirstHostOfSlurmsLists(t *testing.T) {
	for list, want := range map[string]string{
		"n1": "n1", "n1,n2": "n1", "n[01-03,7],gpu5": "n01", "n[7,9]-ib,x": "n7-ib", "a,b[1-2]": "a",
		"": "", "n[1": "", "r[1-2]n[1-2]": "",
	} {
		if got := firstHost(list); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}

func TestSecretIsTheUsersOrGiven(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("sixteen bytes or more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, vars := range []map[string]string{
		{"HDMLP_SECRET": "sixteen bytes or more"}, {"HDMLP_SECRET_FILE": path},
	} {
		if got, err := ReadSecret(from(vars)); err != nil || string(got) != "sixteen bytes or more" {
			t.Errorf("%v: %q, %v", vars, got, err)
		}
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	for want, vars := range map[string]map[string]string{
		"has 5 bytes":       {"HDMLP_SECRET": "short"},
		"no other user can": {"HDMLP_SECRET_FILE": path},
		"set HDMLP_SECRET":  {"HOME": filepath.Dir(path)},
	} {
		if _, err := ReadSecret(from(vars)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want %q", vars, err, want)
		}
	}
}
