package image_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// TestHostileLayers pulls layers that try to write outside of the image. They may be refused or unpacked, but must not
// change anything outside the image.
func TestHostileLayers(t *testing.T) {
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	evil := registrytest.File{Data: []byte("evil"), Mode: 0o644}
	up := "../../../../../../../../../../../../../.."
	for name, layers := range map[string][]registrytest.Layer{
		"path with ..":       {{"a/" + up + victim: evil}},
		"absolute path":      {{victim: evil}},
		"link to the root":   {{"door": {Symlink: "/"}, "door" + victim: evil}},
		"link upwards":       {{"door": {Symlink: up + outside}, "door/victim": evil}},
		"link in a layer":    {{"door": {Symlink: outside}}, {"door/victim": evil}},
		"hard link":          {{"taken": {Link: victim}}},
		"hard link upwards":  {{"taken": {Link: up + victim}}},
		"link to a link":     {{"a": {Symlink: "b"}, "b": {Symlink: outside}, "a/victim": evil}},
		"whiteout with ..":   {{"a/" + up + outside + "/.wh.victim": {}}},
		"whiteout of a link": {{"door": {Symlink: outside}}, {"door/.wh.victim": {}}},
		"opaque whiteout":    {{"door": {Symlink: outside}}, {"door/.wh..wh..opq": {}}},
		"whiteout of ..":     {{"a/.wh...": {}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, containerdtest.Start(t))
			r := registrytest.Start(t, registrytest.Options{})
			p := r.Push(t, "web:v1", registrytest.Image{Layers: append(random(10), layers...)})
			s := h.open(t, nil)
			before := h.contents(t)
			if _, err := s.Pull(t.Context(), "", refOf(p), nil); err != nil {
				t.Logf("refused: %v", err)
				wantCode(t, err, bourse.CodeInvalid)
				h.unchanged(t, before)
			}
			names, err := os.ReadDir(outside)
			if text, _ := os.ReadFile(victim); err != nil || string(text) != "untouched" || len(names) != 1 {
				t.Fatalf("outside the image are %v, and the file contains %q (%v)", names, text, err)
			}
		})
	}
}

// TestDeviceNodes unpacks device nodes. An image may contain them, because a container's own
// rules prevent it from opening them.
func TestDeviceNodes(t *testing.T) {
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: append(random(10), registrytest.Layer{
		"dev/disk": {Device: 'b', Major: 8}, "dev/mem": {Device: 'c', Major: 1, Minor: 1}, "dev/pipe": {Device: 'p'},
	})})
	s := h.open(t, nil)
	if _, err := s.Pull(t.Context(), "", refOf(p), nil); err != nil {
		wantCode(t, err, bourse.CodeInvalid)
		return
	}
	dir := h.rootfs(t, refOf(p))
	for name, want := range map[string]fs.FileMode{"disk": fs.ModeDevice, "mem": fs.ModeDevice, "pipe": fs.ModeNamedPipe} {
		info, err := os.Lstat(filepath.Join(dir, "dev", name))
		if err != nil || info.Mode()&want == 0 {
			t.Errorf("dev/%s is %v, %v", name, info, err)
		}
	}
}

// TestManyFiles pulls and removes a layer with 100,000 files.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("100 000 files take a few seconds")
	}
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: append(random(10), registrytest.ManyFiles(100_000))})
	s := h.open(t, nil)
	before := h.contents(t)
	if _, err := s.Pull(t.Context(), "", refOf(p), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), p.Digest); err != nil {
		t.Error(err)
	}
	h.unchanged(t, before)
}
