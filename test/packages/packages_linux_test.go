package packages

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/internal/vmtest"
)

// limit is the time that the virtual machine may take. On two idle cores, it takes 70
// seconds.
const limit = 15 * time.Minute

// TestDebianPackage installs, upgrades and removes the package. Bourse's machines must
// keep running at each of these steps, which are in testdata/run.
func TestDebianPackage(t *testing.T) {
	host := vmtest.Find(t)
	debian := vmtest.Cached(t, "debian.cpio", "scripts/need-debian")
	dir := t.TempDir()
	content := vmtest.Files{"/test/run": "testdata/run", "/etc/systemd/system/test.service": "testdata/test.service"}
	for _, version := range []string{"0.1.0", "0.2.0"} {
		build(t, dir, version, "deb", "cdx.json")
		checkModules(t, filepath.Join(dir, "bourse_"+version+"_amd64.cdx.json"), version)
		content["/test/"+version+".deb"] = filepath.Join(dir, "bourse_"+version+"_amd64.deb")
	}
	// An initial file system may consist of several archives, which the kernel unpacks
	// one after the other.
	initrd := filepath.Join(dir, "initrd")
	if err := concatenate(initrd, debian, host.Pack(t, content)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	console, err := host.Boot(t.Context(), vmtest.Machine{
		Initrd: initrd, MiB: 2048, Limit: limit,
		Options: "rdinit=/lib/systemd/systemd systemd.unit=test.service systemd.firstboot=off",
	})
	if err != nil || !strings.Contains(console, "\n"+vmtest.Done+"\n") {
		t.Fatalf("%v; the machine's console:\n%s", err, console)
	}
	t.Logf("took %s; the machine's console:\n%s", time.Since(began).Round(time.Second), console)
}

// build builds packages for this host's architecture in a directory.
func build(t *testing.T, dir, version string, formats ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "../../scripts/package", append([]string{dir}, formats...)...)
	command.Env = append(os.Environ(), "ARCHS="+runtime.GOARCH, "RELEASE=v"+version)
	output(t, command)
}

// checkModules checks that a package's list of modules names the program with its version, and a
// library that the program contains.
func checkModules(t *testing.T, path, version string) {
	t.Helper()
	var list struct {
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version string }
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	program, sqlite := list.Metadata.Component, false
	for _, c := range list.Components {
		sqlite = sqlite || c.Name == "modernc.org/sqlite" && c.Version != ""
	}
	if program.Version != "v"+version || !strings.HasPrefix(program.Name, "github.com/bourse-dev/bourse") || !sqlite {
		t.Errorf("%s describes %+v with %d modules (modernc.org/sqlite: %v), want bourse v%s with sqlite", path, program, len(list.Components), sqlite, version)
	}
}

func concatenate(to string, from ...string) (err error) {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for _, path := range from {
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return nil
}
