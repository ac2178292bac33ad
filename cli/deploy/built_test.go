package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse/deploy/config"
)

// TestBuildsAs checks whether an image is built, and under which name, for different
// configurations, files and flags.
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
		"nothing":                       {empty, config.Build{}, "", "", false},
		"a Dockerfile in the directory": {with, config.Build{}, "", "", true},
		"an image":                      {with, config.Build{Image: "nginx"}, "", "nginx", false},
		"an image to build":             {empty, config.Build{Image: "r.test/x", Dockerfile: "d"}, "", "r.test/x", true},
		"the flag names the image":      {empty, config.Build{Image: "r.test/x", Dockerfile: "d"}, "r.test/y", "r.test/y", true},
		"the flag instead of an image":  {with, config.Build{Image: "nginx"}, "r.test/y", "r.test/y", true},
	} {
		f := buildFlags{pushTo: tc.pushTo}
		if as, wanted := f.buildsAs(&tc.b, tc.dir); as != tc.as || wanted != tc.wanted {
			t.Errorf("%s: got name %q, build %v, want %q, %v", name, as, wanted, tc.as, tc.wanted)
		}
	}
}

// TestBuildFlags checks that build flags override the configuration's build section.
func TestBuildFlags(t *testing.T) {
	t.Parallel()
	in := config.Build{Dockerfile: "a", Target: "base", Args: map[string]string{"A": "1", "B": "2"}}
	f := buildFlags{dockerfile: "b/Dockerfile", target: "release", args: []string{"B=3", "C=x=y"}}
	got, err := f.applyTo(&in)
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	want := config.Build{Dockerfile: filepath.Join(here, "b/Dockerfile"), Target: "release", Args: map[string]string{"A": "1", "B": "3", "C": "x=y"}}
	if diff := cmp.Diff(want, got); diff != "" || len(in.Args) != 2 {
		t.Errorf("%v (-want +got):\n%s", in.Args, diff)
	}
	if got, err := new(buildFlags).applyTo(&in); err != nil || !cmp.Equal(got, in) {
		t.Errorf("without flags: %+v, %v", got, err)
	}
	if got, err := (&buildFlags{args: []string{"A=1"}}).applyTo(nil); err != nil || got.Args["A"] != "1" {
		t.Errorf("without a configuration: %+v, %v", got, err)
	}
}

// TestPlanOfUnbuilt checks that --plan shows an image that would have to be built, without
// building or resolving it.
func TestPlanOfUnbuilt(t *testing.T) {
	file := shopFile(t, "")
	have := deployed(t, file)
	dir := filepath.Dir(strings.TrimPrefix(file, "--config="))
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "Dockerfile")
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"shown":                        {[]string{"--plan", "--push-to", "r.test/shop:2"}, 2, "image changed from host to r.test/shop:2"},
		"another file":                 {[]string{"--plan", "--dockerfile", other, "--push-to", "r.test/shop:3", "--build-arg", "A=1"}, 2, "r.test/shop:3"},
		"nothing to build":             {[]string{"--plan", "--build-arg", "A=1"}, 1, "--build-target and --build-arg require a Dockerfile"},
		"no argument":                  {[]string{"--plan", "--push-to", "r.test/shop:2", "--build-arg", "A"}, 1, "--build-arg"},
		"an image and a build section": {[]string{"--image", "r.test/shop:2", "--dockerfile", other}, 2, "use one or the other"},
		"an image and a push target":   {[]string{"--image", "r.test/shop:2", "--push-to", "r.test/shop:3"}, 2, "use one or the other"},
		"a missing Dockerfile":         {[]string{"--dockerfile", "nowhere", "--push-to", "r.test/shop:2"}, 3, "no Dockerfile at"},
	} {
		got := line.Against(t, newFake(t, have), append([]string{"deploy", file}, tt.args...)...)
		if got.Code != tt.code || !strings.Contains(got.Out+got.Err, tt.want) {
			t.Errorf("%s: want %d and %q, got %+v", name, tt.code, tt.want, got)
		}
	}
}
