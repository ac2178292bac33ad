package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestLinksOutOfTheDirectory checks that a Dockerfile or ignore file outside the project's directory is refused, even
// if it is reached through a symbolic link. Links within the directory and absolute paths must be accepted.
func TestLinksOutOfTheDirectory(t *testing.T) {
	outside := files(t, map[string]string{"secret": "FROM scratch\n"})
	dir := files(t, map[string]string{"docker/Dockerfile": "FROM scratch\n", "docker/ignore": "*.secret\n"})
	for link, to := range map[string]string{
		"Dockerfile": filepath.Join(outside, "secret"), "ignore": filepath.Join(outside, "secret"), "inside": "docker/Dockerfile",
		"up": "../" + filepath.Base(outside) + "/secret", "linked": outside,
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		dockerfile, ignorefile string
		want                   bourse.Code
	}{
		"the default":      {"", "", bourse.CodeInvalid},
		"a relative link":  {"up", "", bourse.CodeInvalid},
		"a directory":      {"linked/secret", "", bourse.CodeInvalid},
		"a name with ..":   {"../" + filepath.Base(outside) + "/secret", "", bourse.CodeInvalid},
		"an ignore file":   {"inside", "ignore", bourse.CodeInvalid},
		"a link within":    {"inside", "docker/ignore", ""},
		"an absolute path": {filepath.Join(outside, "secret"), "", ""},
		"nothing":          {"none", "", bourse.CodeNotFound},
	} {
		err := Request{Dir: dir, Dockerfile: c.dockerfile, Ignorefile: c.ignorefile, PushTo: "r.test/x"}.Check()
		if err == nil != (c.want == "") || err != nil && bourse.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if c.want == bourse.CodeInvalid && !strings.Contains(err.Error(), "cannot use ") {
			t.Errorf("%s: %v does not mention the file", name, err)
		}
	}
}
