package serve

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// TestRegistryAuth checks that at most one credential file may be given for all
// organizations, and at most one for each organization.
func TestRegistryAuth(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		shared string
		orgs   map[string]string
		bad    int
	}{
		"none":                           {},
		"shared":                         {args: []string{"/etc/docker.json"}, shared: "/etc/docker.json"},
		"a path with =":                  {args: []string{"./a=b/docker.json"}, shared: "./a=b/docker.json"},
		"organization's":                 {args: []string{"acme=/etc/a=b.json"}, orgs: map[string]string{"acme": "/etc/a=b.json"}},
		"both":                           {args: []string{"/s", "acme=/a", "beta=/b"}, shared: "/s", orgs: map[string]string{"acme": "/a", "beta": "/b"}},
		"two shared":                     {args: []string{"/s", "/t"}, shared: "/s", bad: 1},
		"two files for one organization": {args: []string{"acme=/a", "acme=/b"}, orgs: map[string]string{"acme": "/a"}, bad: 1},
		"no organization":                {args: []string{"=/a"}, bad: 1},
		"no file":                        {args: []string{"acme="}, bad: 1},
		"invalid organization":           {args: []string{"A_B=/a"}, bad: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var c HostConfig
			flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
			b := binder{flags, map[string]error{}}
			c.bind(b)
			args := []string{}
			for _, a := range tc.args {
				args = append(args, "--registry-auth", a)
			}
			if err := flags.Parse(args); err != nil {
				t.Fatal(err)
			}
			bad := len(b.rejected)
			if diff := cmp.Diff(tc.orgs, c.OrgAuth); diff != "" || c.DockerAuth != tc.shared || bad != tc.bad {
				t.Errorf("shared %q, %d errors, want %q, %d; by organization (-want +got):\n%s", c.DockerAuth, bad, tc.shared, tc.bad, diff)
			}
		})
	}
}
