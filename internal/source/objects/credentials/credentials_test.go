package credentials

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const secret = "the-secret-of-the-test"

// environment sets variables for a test, and no other ones that concern keys or proxies.
func environment(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "AWS_") || strings.HasSuffix(strings.ToUpper(name), "_PROXY") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	for name, value := range variables {
		t.Setenv(name, value)
	}
}

// process sets a credential_process that writes a text, and then exits with a status.
func process(t *testing.T, text, status string) {
	t.Helper()
	script, config := filepath.Join(t.TempDir(), "process"), filepath.Join(t.TempDir(), "config")
	for path, content := range map[string]string{
		script: "#!/bin/sh\ncat <<'END'\n" + text + "\nEND\nexit " + status + "\n",
		config: "[default]\ncredential_process = " + script + "\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	environment(t, map[string]string{"AWS_CONFIG_FILE": config})
}

// TestWhatAProcessWritesIsNotShown: it may be keys.
func TestWhatAProcessWritesIsNotShown(t *testing.T) {
	const keys = `"AccessKeyId": "id", "SecretAccessKey": "` + secret + `"`
	for _, c := range []struct{ text, status, want string }{
		{`{"Version": 1, ` + keys + `, }`, "0", "invalid character"},
		{`{"Version": 1, ` + keys, "0", "unexpected end"},
		{`{"Version": "` + secret + `"}`, "0", "cannot unmarshal"},
		{`{"Version": 2, ` + keys + `}`, "0", "wrong version"},
		{secret, "0", "invalid character"},
		{secret, "3", "exit status 3"},
		{
			`{"Version": 1, ` + keys + `, "Expiration": "2020-01-02T03:04:05Z"}`, "0",
			"have expired, at 2020-01-02T03:04:05Z",
		},
	} {
		process(t, c.text, c.status)
		_, err := Find(t.Context(), true)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.text, err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error has what the process wrote: %v", err)
		}
	}
}

// TestProxiesAreNotIgnored: one that is no URL is an error, which does not show its password.
func TestProxiesAreNotIgnored(t *testing.T) {
	for text, ok := range map[string]bool{
		"":                                 true,
		"host:3128":                        true,
		"http://me:" + secret + "@host":    true,
		"socks5://host:1080":               true,
		"http://me:" + secret + "%zz@host": false,
		"http://me:" + secret + "@a host":  false,
		"ftp://me:" + secret + "@host":     false,
		"http://":                          false,
	} {
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
			environment(t, map[string]string{name: text})
			_, err := Find(t.Context(), false)
			if (err == nil) != ok {
				t.Errorf("%s=%s: %v", name, text, err)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the error has the password: %v", err)
			}
		}
	}
}
