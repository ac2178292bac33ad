package hostile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestProjectCannotReadUserFiles deploys a hostile project that contains symbolic links to the user's files. The files
// must not be read into a machine, an image or the configuration.
func TestProjectCannotReadUserFiles(t *testing.T) {
	broker, _ := startPair(t)
	secret := filepath.Join(t.TempDir(), "id_ed25519")
	const head = "app = \"shop\"\nprimary_region = \"gru\"\n"
	const canary = "canary-of-the-user"
	if err := os.WriteFile(secret, []byte(head+"# "+canary), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ link, file string }{
		"a file":            {"key", head + "[build]\nimage = \"127.0.0.1:1/x\"\n[[files]]\nguest_path = \"/key\"\nlocal_path = \"key\"\n"},
		"a Dockerfile":      {"Dockerfile", head + "[build]\nimage = \"127.0.0.1:1/x\"\ndockerfile = \"Dockerfile\"\n"},
		"the configuration": {"fly.toml", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Symlink(secret, filepath.Join(dir, c.link)); err != nil {
				t.Fatal(err)
			}
			if c.file != "" {
				if err := os.WriteFile(filepath.Join(dir, "fly.toml"), []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			token, err := os.ReadFile(broker.TokenFile)
			if err != nil {
				t.Fatal(err)
			}
			deploy := exec.CommandContext(t.Context(), servertest.Program, "deploy")
			deploy.Dir = dir
			deploy.Env = append(os.Environ(), "BOURSE_API=http://"+broker.API, "BOURSE_API_TOKEN="+strings.TrimSpace(string(token)))
			out, err := deploy.CombinedOutput()
			if err == nil || strings.Contains(string(out), canary) || !strings.Contains(string(out), c.link+": path escapes") {
				t.Errorf("%v, want an error that names %s:\n%s", err, c.link, out)
			}
		})
	}
	list, _, err := servertest.Client(t, broker).Machines(t.Context(), "shop", machinesapi.ListMachines{})
	if len(list) > 0 || err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("%d machines (%v), want none", len(list), err)
	}
}
