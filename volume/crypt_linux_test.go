package volume

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestEncryptionRefused(t *testing.T) {
	if hostSupportsCrypt() {
		t.Skip("this host has dm-crypt: see TestEncrypted")
	}
	s := open(t, t.TempDir())
	s.key = func(bourse.VolumeID) ([]byte, error) { return noise(1, keyBytes), nil }
	if _, ok := s.Labels()["volume.encrypted"]; ok || s.Labels()["volume"] != "loop" {
		t.Errorf("a host without dm-crypt has the labels %v", s.Labels())
	}
	order := bourse.VolumeOrder{SizeGB: 1, Encrypted: true}
	wantCode(t, s.Create(t.Context(), vol1, order), bourse.CodeFailedPrecondition)
	wantCode(t, s.Copy(t.Context(), vol1, order, string(snap1)), bourse.CodeFailedPrecondition)
	// The volume was created before the host lost dm-crypt.
	must(t, os.Mkdir(s.path(string(vol1), stageComplete), 0o700))
	must(t, os.WriteFile(image(s, string(vol1)), append([]byte(luksMagic), make([]byte, 1<<20)...), 0o600))
	_, err := s.Mount(t.Context(), vol1)
	wantCode(t, err, bourse.CodeFailedPrecondition)
	if u, err := s.Usage(t.Context(), vol1); err != nil || u != (bourse.VolumeUsage{}) {
		t.Errorf("usage of an encrypted volume that is not mounted: %+v, %v", u, err)
	}
	err = s.Export(t.Context(), string(vol1), Position{}, io.Discard)
	wantCode(t, err, bourse.CodeFailedPrecondition)
	if mounts, err := mountsBelow(s.dir); err != nil || len(mounts) > 0 {
		t.Errorf("mounts %q, %v", mounts, err)
	}
}

// TestEncrypted creates encrypted volumes. It is skipped on hosts that do not support them.
func TestEncrypted(t *testing.T) {
	if !hostSupportsCrypt() {
		t.Skip("this host has no dm-crypt")
	}
	s := open(t, t.TempDir())
	key, err := KeyFile(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	s.key, s.crypt = key, true
	order := bourse.VolumeOrder{SizeGB: 1, Encrypted: true}
	must(t, s.Create(t.Context(), vol1, order))
	write(t, filepath.Join(mount(t, s, vol1), "a"), noise(1, 1<<20))
	_, err = s.Snapshot(t.Context(), vol1, snap1)
	must(t, err)
	must(t, s.Destroy(t.Context(), vol1))
	must(t, s.Fill(t.Context(), vol2, order, remote(s, string(snap1))))
	if read(t, filepath.Join(mount(t, s, vol2), "a")) != string(noise(1, 1<<20)) {
		t.Error("the restored file has the wrong contents")
	}
	for range 2 {
		guest(t, attach(t, s, vol2), func(dir string) {
			if read(t, filepath.Join(dir, "a")) != string(noise(1, 1<<20)) {
				t.Error("the guest's file is not what was written")
			}
		})
		must(t, s.Unmount(t.Context(), vol2))
	}
}

func TestCryptCommands(t *testing.T) {
	for _, c := range []struct{ got, want []string }{
		{luksFormatArgs("i", "u"), []string{
			"cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2", "--cipher", "aes-xts-plain64", "--key-size", "512", "--sector-size", "4096",
			"--uuid", "u", "--key-file", "-", "i", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000",
		}},
		{luksOpenArgs("/dev/loop1", "n"), []string{"cryptsetup", "open", "--type", "luks2", "--allow-discards", "--key-file", "-", "/dev/loop1", "n"}},
		{luksTestArgs("i"), []string{"cryptsetup", "open", "--test-passphrase", "--type", "luks2", "--key-file", "-", "i"}},
		{luksRekeyArgs("i", "f"), []string{
			"cryptsetup", "luksChangeKey", "--batch-mode", "--key-file", "-", "i", "f", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000",
		}},
		{luksResizeArgs("n"), []string{"cryptsetup", "resize", "--key-file", "-", "n"}},
		{luksCloseArgs("n"), []string{"cryptsetup", "close", "n"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("command %q, want %q", c.got, c.want)
		}
	}
}

// TestRekey replaces the key of a copied image with the key of the new volume. It needs cryptsetup, but no kernel
// support.
func TestRekey(t *testing.T) {
	if _, err := tool("cryptsetup"); err != nil {
		t.Skip(err)
	}
	s := open(t, t.TempDir())
	s.key = func(id bourse.VolumeID) ([]byte, error) { return noise(int(id[len(id)-1]), keyBytes), nil }
	must(t, s.begin(string(vol2), stageReady))
	path := s.path(string(vol2), stageReady, imageFile)
	f, err := makeImage(path, 64<<20)
	must(t, errors.Join(err, f.Close()))
	old, err := s.key(vol1)
	must(t, err)
	must(t, run(t.Context(), old, luksFormatArgs(path, uuidOf("x"))))
	if img, err := os.Open(path); err != nil {
		t.Error(err)
	} else if is, err := encrypted(img); err != nil || !is {
		t.Errorf("an encrypted image was not recognized: %v", errors.Join(err, img.Close()))
	}
	must(t, os.WriteFile(s.path(string(vol2), stageReady, sourceKeyFile), old, 0o600))
	fill := &filler{s: s, id: string(vol2)}
	for range 2 {
		must(t, fill.replaceKey(t.Context()))
	}
	if err := run(t.Context(), old, luksTestArgs(path)); err == nil {
		t.Error("the source's key still opens the copy")
	}
	own, err := s.keyOf(string(vol2), stageReady)
	must(t, err)
	must(t, run(t.Context(), own, luksTestArgs(path)))
	if _, err := os.Stat(s.path(string(vol2), stageReady, sourceKeyFile)); err == nil {
		t.Error("the source's key is still in the image")
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	key, err := KeyFile(path)
	must(t, err)
	a, err := key(vol1)
	must(t, err)
	again, err := KeyFile(path)
	must(t, err)
	b, err := again(vol1)
	must(t, err)
	c, err := again(vol2)
	must(t, err)
	if len(a) != keyBytes || !bytes.Equal(a, b) || bytes.Equal(a, c) {
		t.Errorf("keys of %d bytes: same key again %t, same key for another volume %t", len(a), bytes.Equal(a, b), bytes.Equal(a, c))
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v", st, err)
	}
	must(t, os.WriteFile(path, []byte("short"), 0o600))
	_, err = KeyFile(path)
	wantCode(t, err, bourse.CodeInvalid)
}
