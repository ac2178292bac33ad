package deploy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bourse-dev/bourse/deploy/config"
)

// TestBuildsAs says for which configurations, files and flags an image is built, and under which name.
func TestBuildsAs(t *testing.T) {
	t.Parallel()
	empty, with := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(with, "Dockerfile"), []byte("FROM scratch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		dir    string
		b      config.Build
		pushTo string
		as     string
		wanted bool
	}{
		"nothing":                      {empty, config.Build{}, "", "", false},
		"a Dockerfile is here":         {with, config.Build{}, "", "", true},
		"an image":                     {with, config.Build{Image: "nginx"}, "", "nginx", false},
		"an image that is made":        {empty, config.Build{Image: "r.test/x", Dockerfile: "d"}, "", "r.test/x", true},
		"the flag says where":          {empty, config.Build{Image: "r.test/x", Dockerfile: "d"}, "r.test/y", "r.test/y", true},
		"the flag instead of an image": {with, config.Build{Image: "nginx"}, "r.test/y", "r.test/y", true},
	} {
		f := deployFlags{pushTo: tc.pushTo}
		if as, wanted := f.buildsAs(&tc.b, tc.dir); as != tc.as || wanted != tc.wanted {
			t.Errorf("%s: as %q, %v, want %q, %v", name, as, wanted, tc.as, tc.wanted)
		}
	}
}
