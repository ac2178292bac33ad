package loopback

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/bourse-dev/bourse"
)

// Variable names the directory in the environment, where another than the
// usual one is wanted.
const Variable = "BOURSE_RUNTIME_DIR"

// Dir returns the directory of this user: the value of [Variable]; /run/bourse for
// root; below XDG_RUNTIME_DIR, or else .local/state of the home directory.
func Dir(getenv func(string) string) (string, error) {
	if dir := getenv(Variable); dir != "" {
		return dir, nil
	}
	if os.Geteuid() == 0 {
		if runtime.GOOS == "darwin" {
			return "/var/run/bourse", nil
		}
		return "/run/bourse", nil
	}
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "bourse"), nil
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "bourse"), nil
	}
	return "", bourse.Errorf(bourse.CodeInvalid, "there is no place for the credentials of loopback: set %s to a directory that only you can read", Variable)
}

// Store is the directory. Its files are written whole or not at all, and read
// only if no other user can write or read them.
type Store struct {
	dir  string
	root *os.Root
}

// Open opens the directory, and makes it if create is set. A directory that
// others may use is CodeInvalid.
func Open(dir string, create bool) (*Store, error) {
	if create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "the credentials of loopback: %w; %s names another directory", err, Variable)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeNotFound, "the credentials of loopback: %w", err)
	}
	info, err := root.Stat(".") // of what was opened, even if the path has changed since
	if err == nil {
		err = private(info)
	}
	if err != nil {
		return nil, errors.Join(bourse.Errorf(bourse.CodeInvalid, "the credentials of loopback are not safe in %s: %w; %s names another directory", dir, err, Variable), root.Close())
	}
	return &Store{dir: dir, root: root}, nil
}

// Close closes the directory.
func (s *Store) Close() error { return s.root.Close() }

// Path returns where a file is.
func (s *Store) Path(name string) string { return filepath.Join(s.dir, name) }

// private reports how others than this user may use a file or directory.
func private(info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return errors.New("it belongs to somebody else")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("its mode is %#o: others may use it", info.Mode().Perm())
	}
	return nil
}

// textLength is that of rand.Text, with 130 bits or more: enough for any use.
const textLength = 26

// open opens a file that no other user can write or read. One that is not there is
// CodeNotFound. A link that leads out of the directory is not followed.
func (s *Store) open(name string) (*os.File, error) {
	f, err := s.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bourse.Errorf(bourse.CodeNotFound, "%w", err)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err == nil {
		err = private(info)
	}
	if err != nil {
		return nil, errors.Join(bourse.Errorf(bourse.CodeInvalid, "%s: %w", s.Path(name), err), f.Close())
	}
	return f, nil
}

// Read returns the text in a file. One that is not there is CodeNotFound. A link
// that leads out of the directory is not followed.
func (s *Store) Read(name string) (string, error) {
	f, err := s.open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 2*textLength))
	if err != nil {
		return "", bourse.Errorf(bourse.CodeInvalid, "%s: %w", s.Path(name), err)
	}
	token := strings.TrimSuffix(string(text), "\n")
	if len(token) != textLength || strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return "", bourse.Errorf(bourse.CodeInvalid, "%s holds no credentials: remove it", s.Path(name))
	}
	return token, nil
}

// Keep returns the text in a file, which it makes with a random one if it is
// not there. Of several who do so at once all return the same.
func (s *Store) Keep(name string) (string, error) {
	if text, err := s.Read(name); bourse.CodeOf(err) != bourse.CodeNotFound {
		return text, err
	}
	temp := ".new-" + rand.Text()
	if err := s.write(temp, rand.Text()+"\n"); err != nil {
		return "", bourse.Errorf(bourse.CodeInvalid, "write credentials of loopback: %w", err)
	}
	err := s.root.Link(temp, name) // unlike Rename, never in place of another's
	if err := errors.Join(ignore(err, fs.ErrExist), s.root.Remove(temp)); err != nil {
		return "", bourse.Errorf(bourse.CodeInvalid, "write credentials of loopback: %w", err)
	}
	return s.Read(name)
}

func ignore(err, one error) error {
	if errors.Is(err, one) {
		return nil
	}
	return err
}

func (s *Store) write(name, text string) error {
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close()) // a crash must not leave a name with nothing in it
}

// Remove removes a file; one that is gone already is no error.
func (s *Store) Remove(name string) error { return ignore(s.root.Remove(name), fs.ErrNotExist) }
