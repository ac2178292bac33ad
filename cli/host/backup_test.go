package host

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/wholefile"
	"github.com/bourse-dev/bourse/view"
)

// initialized returns a host of a cluster, with the files that init and its servers have written. age is how long ago
// its credentials were created.
func initialized(t *testing.T, age time.Duration) *setup {
	t.Helper()
	h := newSetup(t)
	h.shell.Now = func() time.Time { return time.Now().Add(-age) }
	if err := h.makeDirs(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.createCredentials("c1"); err != nil {
		t.Fatal(err)
	}
	if err := h.write("c1", networks{address: h.address}); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"worker/volume.key": "the key", "worker/worker.db": "the store", "worker/worker.wal.0": "its log",
		"worker/volumes/v1": "a volume", "broker/join-tokens.json": "[]",
	} {
		path := filepath.Join(h.data, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	v, err := view.Open(view.Config{Path: filepath.Join(h.data, "broker", "view.db"), Cluster: "c1", Site: "h1-broker"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- v.Run(ctx) }()
	if err := v.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := errors.Join(<-ended, v.Close()); err != nil {
		t.Fatal(err)
	}
	return h
}

// backedUp returns the path of a backup of a host.
func backedUp(t *testing.T, h *setup) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "h1.tar")
	if got := clitest.Of(NewBackup).Run(t, "backup", path, "--config", h.config); got.Code != 0 {
		t.Fatalf("backup: %+v", got)
	}
	return path
}

// lose removes everything that restore writes.
func (h *setup) lose(t *testing.T) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(string(h.dir())), os.RemoveAll(h.data)); err != nil {
		t.Fatal(err)
	}
}

// restoring returns a restore on a host.
func restoring(h *setup, name string) *restore {
	shell := &cli.Shell{Env: h.shell.Env}
	shell.Now = time.Now
	return &restore{setup: setup{shell: shell, config: h.config, name: name}}
}

// restored restores a backup without starting the servers.
func (r *restore) restored(t *testing.T, path string) error {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := r.check(f); err != nil {
		return err
	}
	return r.write(t.Context(), f)
}

// files returns the contents of all files below a directory, by their paths.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[name] = string(text)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

// A restored host has the same configuration and keys, and a copy of the view, but no parts of its worker's store,
// volumes or join tokens.
func TestBackupAndRestore(t *testing.T) {
	h := initialized(t, 0)
	before := files(t, string(h.dir()))
	path := backedUp(t, h)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
		t.Errorf("other files next to the backup: %v, %v", list, err)
	}
	h.lose(t)
	if err := restoring(h, "h1").restored(t, path); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, files(t, string(h.dir()))); diff != "" {
		t.Errorf("credentials (-want +got):\n%s", diff)
	}
	data := files(t, h.data)
	if len(data) != 2 || data["worker/volume.key"] != "the key" || len(data["broker/view.db"]) == 0 {
		t.Errorf("data: %v", slicesOf(data))
	}
	for _, e := range []string{h.config, filepath.Join(h.data, "broker", "view.db"), filepath.Join(h.data, "worker", "volume.key")} {
		if info, err := os.Stat(e); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v; want 0600", e, info.Mode(), err)
		}
	}
}

func slicesOf(m map[string]string) (names []string) {
	for name := range maps.Keys(m) {
		names = append(names, name)
	}
	return names
}

// The manifest lists all files, and --json prints it. The archive can also be written to standard output.
func TestBackupManifest(t *testing.T) {
	h := initialized(t, 0)
	path := filepath.Join(t.TempDir(), "h1.tar")
	got := clitest.Of(NewBackup).Run(t, "backup", path, "--config", h.config, "--json")
	var printed manifest
	if err := json.Unmarshal([]byte(got.Out), &printed); err != nil {
		t.Fatalf("%+v: %v", got, err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stored, err := readArchive(f, func(*manifest, *archived, io.Reader) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&printed, stored); diff != "" {
		t.Errorf("manifest (-printed +stored):\n%s", diff)
	}
	if stored.Host != "h1" || stored.Cluster != "c1" || len(stored.Servers) != 3 || len(stored.Files) != 12 {
		t.Errorf("manifest %+v", stored)
	}
	got = clitest.Of(NewBackup).Run(t, "backup", "-", "--config", h.config)
	if _, err := readArchive(strings.NewReader(got.Out), func(*manifest, *archived, io.Reader) error { return nil }); got.Code != 0 || err != nil {
		t.Errorf("backup to standard output: %d, %s, %v", got.Code, got.Err, err)
	}
}

func TestBackupIsRefused(t *testing.T) {
	h := initialized(t, 0)
	there := backedUp(t, h)
	before, err := os.ReadFile(there)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want bourse.Code
	}{
		"over a file":        {[]string{there}, bourse.CodeAlreadyExists},
		"no directory":       {[]string{there + "/x/y.tar"}, bourse.CodeInvalid},
		"no configuration":   {[]string{there + ".2", "--config", h.config + ".none"}, bourse.CodeNotFound},
		"archive and result": {[]string{"-", "--json"}, bourse.CodeInvalid},
	} {
		got := clitest.Of(NewBackup).Run(t, append([]string{"backup", "--config", h.config}, c.args...)...)
		if got.Code != c.want.ExitStatus() {
			t.Errorf("%s: %+v, want exit status %d", name, got, c.want.ExitStatus())
		}
	}
	if after, err := os.ReadFile(there); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the backup has changed: %v", err)
	}
}

// Restore never overwrites anything. It can be repeated after an interruption.
func TestRestoreOverwritesNothing(t *testing.T) {
	h := initialized(t, 0)
	path := backedUp(t, h)
	key, volumeKey, broker := h.dir().SecretsKey(), filepath.Join(h.data, "worker", "volume.key"), filepath.Join(h.data, "broker", "view.db")
	for name, c := range map[string]struct {
		change func() error
		want   bourse.Code
	}{
		"a member":              {func() error { return nil }, bourse.CodeAlreadyExists},
		"another key":           {func() error { return errors.Join(os.Remove(h.config), os.WriteFile(key, []byte("x"), 0o600)) }, bourse.CodeAlreadyExists},
		"another volume key":    {func() error { return errors.Join(os.Remove(h.config), os.WriteFile(volumeKey, []byte("x"), 0o600)) }, bourse.CodeAlreadyExists},
		"only no configuration": {func() error { return os.Remove(h.config) }, ""},
		"a view":                {func() error { return errors.Join(os.Remove(h.config), os.WriteFile(broker, []byte("newer"), 0o600)) }, ""},
	} {
		h.lose(t)
		if err := restoring(h, "h1").restored(t, path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(h.data, "worker", "worker.db"), []byte("newer"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		before := files(t, filepath.Dir(h.data))
		err := restoring(h, "h1").restored(t, path)
		if bourse.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if c.want == "" {
			before["etc/bourse.toml"] = files(t, string(h.dir()))["bourse.toml"]
		}
		if diff := cmp.Diff(before, files(t, filepath.Dir(h.data))); diff != "" {
			t.Errorf("%s: files (-before +after):\n%s", name, diff)
		}
	}
}

// A backup is restored only on the host that has its name and its paths.
func TestRestoreOfAnotherHost(t *testing.T) {
	h := initialized(t, 0)
	path := backedUp(t, h)
	h.lose(t)
	if err := restoring(h, "h2").restored(t, path); bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), "host h1") {
		t.Errorf("restore as h2: %v, want an error that names h1", err)
	}
	other := *h
	other.config = filepath.Join(t.TempDir(), "bourse.toml")
	if err := restoring(&other, "h1").restored(t, path); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("restore with another configuration path: %v, want invalid", err)
	}
	if left := files(t, filepath.Dir(h.data)); len(left) > 0 {
		t.Errorf("restore has written %v", slicesOf(left))
	}
}

// Certificates that have expired are replaced if the backup has an issuer. Repeating the command does not replace
// them again.
func TestRestoreRenewsCertificates(t *testing.T) {
	h := initialized(t, 30*24*time.Hour)
	path := backedUp(t, h)
	h.lose(t)
	if err := restoring(h, "h1").restored(t, path); err != nil {
		t.Fatal(err)
	}
	leaf := func(name bourse.WorkerID) *x509.Certificate {
		t.Helper()
		text, err := os.ReadFile(h.dir().Server(name))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	for _, name := range []bourse.WorkerID{"h1", "h1-broker"} {
		creds, err := admission.Load(admission.Files{CA: h.dir().CA(), Pair: h.dir().Server(name)})
		if err != nil || creds.Self().ID != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := leaf("h1-broker").VerifyHostname("10.0.0.1"); err != nil {
		t.Error(err)
	}
	before := leaf("h1")
	if err := os.Remove(h.config); err != nil {
		t.Fatal(err)
	}
	if err := restoring(h, "h1").restored(t, path); err != nil || !before.Equal(leaf("h1")) {
		t.Errorf("second restore: %v; the certificate has changed: %t", err, !before.Equal(leaf("h1")))
	}

	h = initialized(t, 2*365*24*time.Hour)
	path = backedUp(t, h)
	h.lose(t)
	if err := restoring(h, "h1").restored(t, path); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("restore with an expired issuer: %v, want failed precondition", err)
	}
	h = initialized(t, 30*24*time.Hour)
	if err := os.Remove(h.dir().Issuer()); err != nil {
		t.Fatal(err)
	}
	path = backedUp(t, h)
	h.lose(t)
	if err := restoring(h, "h1").restored(t, path); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("restore without an issuer: %v, want failed precondition", err)
	}
}

// Restore rejects damaged and forged archives, and writes nothing in that case.
func TestRestoreOfHostileArchives(t *testing.T) {
	h := initialized(t, 0)
	path := backedUp(t, h)
	h.lose(t)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// change rebuilds the archive. do changes the manifest and the headers of the files.
	change := func(do func(m *manifest, files []*tar.Header)) []byte { return rebuilt(t, good, do) }
	flipped := bytes.Clone(good)
	flipped[bytes.Index(flipped, []byte("the key"))] ^= 1
	for name, data := range map[string][]byte{
		"empty":            nil,
		"no archive":       []byte(strings.Repeat("x", 2000)),
		"half":             good[:len(good)/2],
		"without its end":  good[:3*512],
		"changed contents": flipped,
		"another format":   change(func(m *manifest, _ []*tar.Header) { m.Format++ }),
		"no host":          change(func(m *manifest, _ []*tar.Header) { m.Host = "../h1" }),
		"relative config":  change(func(m *manifest, _ []*tar.Header) { m.Config = "etc/bourse.toml" }),
		"unclean data":     change(func(m *manifest, _ []*tar.Header) { m.Servers[1].Data = "/var/../etc" }),
		"no servers":       change(func(m *manifest, _ []*tar.Header) { m.Servers = nil }),
		"no such role":     change(func(m *manifest, _ []*tar.Header) { m.Servers[0].Role = "boss" }),
		"no such address":  change(func(m *manifest, _ []*tar.Header) { m.Servers[0].Listen = "example.com:http" }),
		"traversal": change(func(m *manifest, files []*tar.Header) {
			m.Files[0].Name = "config/../../x"
			files[0].Name = m.Files[0].Name
		}),
		"absolute": change(func(m *manifest, files []*tar.Header) { m.Files[0].Name, files[0].Name = "/etc/passwd", "/etc/passwd" }),
		"unknown file": change(func(m *manifest, files []*tar.Header) {
			m.Files[0].Name, files[0].Name = "worker/worker.db", "worker/worker.db"
		}),
		"set-user-ID":   change(func(m *manifest, _ []*tar.Header) { m.Files[0].Mode |= 0o4000 }),
		"others write":  change(func(m *manifest, _ []*tar.Header) { m.Files[0].Mode |= 0o002 }),
		"twice":         change(func(m *manifest, files []*tar.Header) { m.Files[1], files[1].Name = m.Files[0], files[0].Name }),
		"negative size": change(func(m *manifest, _ []*tar.Header) { m.Files[0].Size = -1 }),
		"huge size":     change(func(m *manifest, _ []*tar.Header) { m.Files[0].Size = 1 << 62 }),
		"another size":  change(func(m *manifest, _ []*tar.Header) { m.Files[0].Size++ }),
		"no hash":       change(func(m *manifest, _ []*tar.Header) { m.Files[0].SHA256 = "" }),
		"another hash":  change(func(m *manifest, _ []*tar.Header) { m.Files[0].SHA256 = m.Files[1].SHA256 }),
		"not listed":    change(func(m *manifest, _ []*tar.Header) { m.Files = m.Files[:len(m.Files)-1] }),
		"link": change(func(_ *manifest, files []*tar.Header) {
			*files[0] = tar.Header{Typeflag: tar.TypeSymlink, Name: files[0].Name, Linkname: "/etc/passwd"}
		}),
		"hard link": change(func(_ *manifest, files []*tar.Header) {
			*files[0] = tar.Header{Typeflag: tar.TypeLink, Name: files[0].Name, Linkname: "manifest.json"}
		}),
		"device": change(func(_ *manifest, files []*tar.Header) {
			*files[0] = tar.Header{Typeflag: tar.TypeChar, Name: files[0].Name, Devmajor: 1, Devminor: 3}
		}),
		"extended names": change(func(_ *manifest, files []*tar.Header) {
			files[0].Format, files[0].PAXRecords = tar.FormatPAX, map[string]string{"X.y": "z"}
		}),
	} {
		path := filepath.Join(t.TempDir(), "h1.tar")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := restoring(h, "h1").restored(t, path); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: %v, want invalid", name, err)
		}
		if left := files(t, filepath.Dir(h.data)); len(left) > 0 {
			t.Fatalf("%s: restore has written %v", name, slicesOf(left))
		}
	}
	for _, at := range []int{512, 1024, len(good) / 3, len(good) - 3*512} { // a file's end is at least two blocks before the archive's
		if _, err := readArchive(bytes.NewReader(good[:at]), func(*manifest, *archived, io.Reader) error { return nil }); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("restore of the first %d of %d bytes: %v, want invalid", at, len(good), err)
		}
	}
}

// rebuilt writes an archive again, with changes.
func rebuilt(t testing.TB, archive []byte, change func(m *manifest, files []*tar.Header)) []byte {
	t.Helper()
	var m manifest
	var headers []*tar.Header
	var contents [][]byte
	for in := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == manifestEntry {
			if err := json.Unmarshal(text, &m); err != nil {
				t.Fatal(err)
			}
			continue
		}
		headers, contents = append(headers, h), append(contents, text)
	}
	change(&m, headers)
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	headers = append([]*tar.Header{{Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: manifestEntry, Mode: 0o600, Size: int64(len(text))}}, headers...)
	for i, h := range headers {
		err := w.WriteHeader(h)
		if err == nil && h.Size > 0 && i > 0 {
			_, err = w.Write(contents[i-1])
		} else if err == nil && i == 0 {
			_, err = w.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// FuzzReadArchive checks that whatever an archive contains, only files with known names and correct hashes are
// accepted.
func FuzzReadArchive(f *testing.F) {
	m := &manifest{
		Format: archiveFormat, Cluster: "c1", Host: "h1", Config: "/etc/bourse/bourse.toml",
		Servers: []saved{{Role: bourse.RoleWorker, Name: "h1", Data: "/var/lib/bourse/worker", View: "/var/lib/bourse/worker/view.db"}},
	}
	var entries []entry
	for _, name := range []string{"config/bourse.toml", "config/ca.pem", volumeKeyEntry, viewEntry(bourse.RoleWorker)} {
		path := filepath.Join(f.TempDir(), "file")
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			f.Fatal(err)
		}
		e, err := readEntry(name, path)
		if err != nil {
			f.Fatal(err)
		}
		entries, m.Files = append(entries, e), append(m.Files, e.archived)
	}
	var good bytes.Buffer
	if err := writeArchive(&good, m, entries); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add(good.Bytes()[:good.Len()/2])
	f.Add(rebuilt(f, good.Bytes(), func(m *manifest, _ []*tar.Header) { m.Config = "/" }))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		read := map[string][]byte{}
		m, err := readArchive(bytes.NewReader(data), func(_ *manifest, file *archived, r io.Reader) error {
			text, err := io.ReadAll(r)
			read[file.Name] = text
			return err
		})
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Fatalf("error %v", err)
			}
			return
		}
		r := &restore{setup: setup{config: m.Config}, manifest: m}
		for i := range m.Files {
			path := r.target(&m.Files[i])
			if path != "" && filepath.Clean(path) != path {
				t.Errorf("file %q is restored to %q", m.Files[i].Name, path)
			}
			if _, sum, _ := digest(bytes.NewReader(read[m.Files[i].Name])); !strings.EqualFold(sum, m.Files[i].SHA256) {
				t.Errorf("file %q has another hash", m.Files[i].Name)
			}
		}
	})
}

// If the disk is full or fails, neither an incomplete backup nor other files remain.
func TestBackupToAFailingDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "h1.tar")
	full := errors.New("no space left on device")
	err := writeNew(path, filepath.Join(dir, "temp"), func(w io.Writer) error {
		_, err := w.Write([]byte("half"))
		return errors.Join(err, full)
	})
	if bourse.CodeOf(err) != bourse.CodeUnavailable || !errors.Is(err, full) {
		t.Errorf("%v, want unavailable", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the backup exists: %v", err)
	}
	if err := wholefile.Write(path, []byte("older"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = writeNew(path, filepath.Join(dir, "temp2"), func(io.Writer) error { return nil })
	if text, _ := os.ReadFile(path); bourse.CodeOf(err) != bourse.CodeAlreadyExists || string(text) != "older" {
		t.Errorf("backup to a file that was created in the meantime: %v, %q", err, text)
	}
}
