package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/cli"
)

// TestDeployDoesNotFollowLinksOutOfTheProject checks that a deploy does not copy a file to machines if a symbolic link
// leads to it and the file is outside of the configuration's directory. Links within the directory work.
func TestDeployDoesNotFollowLinksOutOfTheProject(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	for name, text := range map[string]string{
		outside:                         "canary",
		filepath.Join(dir, "page.html"): "hello",
		filepath.Join(dir, "fly.toml"):  "app = \"shop\"\n[build]\nimage = \"r.test/x\"\n[[files]]\nguest_path = \"/a\"\nlocal_path = \"link\"\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	want := func(to string) (string, error) {
		_ = os.Remove(link)
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		f := deployFlags{smoke: true}
		f.config = filepath.Join(dir, "fly.toml")
		w, err := f.want(t.Context(), &cli.Shell{})
		if err != nil {
			return "", err
		}
		return string(w.App.Groups[0].Config.Files[0].RawValue), nil
	}
	if got, err := want("page.html"); err != nil || got != "hello" {
		t.Errorf("link within the project: %q, %v", got, err)
	}
	if got, err := want(outside); err == nil || !strings.Contains(err.Error(), "link") {
		t.Errorf("link out of the project: %q, %v, want an error that names the link", got, err)
	}
}
