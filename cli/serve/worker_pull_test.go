package serve

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestPullConfig checks that a gateway that is accessible to others requires TLS and
// tokens, and that a worker without a gateway requires nothing.
func TestPullConfig(t *testing.T) {
	with := func(args []string, more ...string) []string { return slices.Concat(args, more) }
	base := []string{"--data", "/d", "--name", "a", "--region", "gru"}
	open := with(base, "--pull", "--pull-listen", "0.0.0.0:4281")
	tls := []string{"--credentials", credentialsDir(t, "ca.pem", "a.pem")}
	for what, c := range map[string]struct {
		args []string
		want string // part of the error; "" if there is none
	}{
		"none":                        {base, ""},
		"no gateway, but an address":  {with(base, "--pull-listen", "0.0.0.0:1"), ""},
		"loopback":                    {with(base, "--pull"), ""},
		"open":                        {open, "TLS (CA, certificate and key) and client tokens"},
		"open with TLS":               {with(open, tls...), "without client tokens"},
		"open with tokens":            {with(open, "--pull-token-file", "t"), "without TLS"},
		"open with both":              {with(with(open, tls...), "--pull-token-file", "t"), ""},
		"open with --insecure":        {with(open, "--insecure"), ""},
		"no address":                  {with(base, "--pull", "--pull-listen", "here"), "--pull-listen"},
		"no time until a job is lost": {with(base, "--pull", "--pull-lost", "0s"), "--pull-lost"},
		"negative time":               {with(base, "--pull", "--pull-lost", "-1m"), "--pull-lost"},
	} {
		config := workerConfig(t, c.args...)
		err := problemsOf(&config)
		if (err == nil) != (c.want == "") || err != nil && (bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	c := workerConfig(t, with(base, "--pull", "--pull-lost", "90s")...)
	if c.Pull.Listen.String() != DefaultPull || c.Pull.Lost != 90*time.Second || !c.Pull.Enabled {
		t.Errorf("parsed as %+v", c.Pull)
	}
}
