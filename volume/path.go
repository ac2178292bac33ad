package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/bourse-dev/bourse"
)

// The files in an object's directory.
const (
	imageFile     = "image"
	mountDir      = "mnt"
	contentFile   = "content.json"
	keyFile       = "key"
	vmFile        = "vm"        // see markVM
	sourceKeyFile = "sourcekey" // the key that opens the image of an encrypted source
	progressFile  = "progress"
	progressNew   = "progress.new"
)

// stage is the suffix that follows the id in the name of an object's directory.
type stage string

const (
	stageComplete stage = ""
	stageNew      stage = ".new"
	stageFilling  stage = ".fill"
	stageReady    stage = ".ready"
	stageGone     stage = ".gone"
	stageForked   stage = ".fork" // followed by the copy's number
)

var entryPattern = regexp.MustCompile(`^(vol_[0-9a-z]{16}|vs_[0-9a-z]{16}|[0-9a-f]{14})(\.new|\.fill|\.ready|\.gone|\.fork[0-9]{1,9})?$`)

// entry parses a directory's name into the object's id and stage. It returns false for other names.
func entry(name string) (id string, at stage, ok bool) {
	m := entryPattern.FindStringSubmatch(name)
	if m == nil {
		return "", "", false
	}
	at = stage(m[2])
	if strings.HasPrefix(m[2], string(stageForked)) {
		at = stageForked
	}
	return m[1], at, true
}

// path returns the path of a file in an object's directory. id must be valid.
func (s *Store) path(id string, at stage, file ...string) string {
	return filepath.Join(append([]string{s.dir, id + string(at)}, file...)...)
}

// has reports whether an object exists in the given stage.
func (s *Store) has(id string, at stage) (bool, error) {
	switch _, err := os.Lstat(s.path(id, at)); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, failed(err, "stat %s", id)
	}
}

// requireComplete returns CodeNotFound if the object is not complete.
func (s *Store) requireComplete(id string) error {
	ok, err := s.has(id, stageComplete)
	if err == nil && !ok {
		err = bourse.Errorf(bourse.CodeNotFound, "%s not found on this host", id)
	}
	return err
}

// begin creates an empty directory for an object in the given stage.
func (s *Store) begin(id string, at stage) error {
	if err := s.clear(id, at); err != nil {
		return err
	}
	return failed(os.Mkdir(s.path(id, at), 0o700), "create %s", id)
}

// advance renames an object's directory from one stage to the next. After a crash, the object is in
// one of the two stages.
func (s *Store) advance(id string, from, to stage) error {
	if err := syncDir(s.path(id, from)); err != nil {
		return failed(err, "sync %s", id)
	}
	if err := os.Rename(s.path(id, from), s.path(id, to)); err != nil {
		return failed(err, "rename %s", id)
	}
	return failed(syncDir(s.dir), "sync the volume directory")
}

// clear removes an object that is in the given stage. It never descends into subdirectories: if a
// volume is unexpectedly mounted on one of them, clear fails instead of emptying the volume.
func (s *Store) clear(id string, at stage) error {
	dir := s.path(id, at)
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		err = errors.Join(err, os.Remove(filepath.Join(dir, f.Name())))
	}
	if err == nil {
		err = os.Remove(dir)
	}
	return failed(err, "remove %s", id)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeFile writes a small file. The file survives a crash once its directory has been synced.
func writeFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
