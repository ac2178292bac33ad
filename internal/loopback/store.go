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

// Variable is the environment variable that overrides the directory.
const Variable = "BOURSE_RUNTIME_DIR"

// Dir returns this user's directory: the value of [Variable] if it is set, /run/bourse for
// root, and otherwise a directory below XDG_RUNTIME_DIR or ~/.local/state.
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
	return "", bourse.Errorf(bourse.CodeInvalid, "no directory for loopback credentials: set %s to a directory that only you can read", Variable)
}

// Store is a directory with credentials. It writes files atomically, and reads only files that no
// other user can read or write.
type Store struct {
	dir  string
	root *os.Root
}

// Open opens a directory. If the directory does not exist and create is set, Open creates it.
// Errors: invalid if other users can access the directory; not_found if it does not exist.
func Open(dir string, create bool) (*Store, error) {
	if create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "create the directory of loopback credentials: %w; set %s to use another directory", err, Variable)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeNotFound, "open the directory of loopback credentials: %w", err)
	}
	info, err := root.Stat(".") // Stat checks the directory that was opened, even if its path has changed
	if err == nil {
		err = private(info)
	}
	if err != nil {
		return nil, errors.Join(bourse.Errorf(bourse.CodeInvalid, "loopback credentials are not safe in %s: %w; set %s to use another directory", dir, err, Variable), root.Close())
	}
	return &Store{dir: dir, root: root}, nil
}

// Close closes the directory.
func (s *Store) Close() error { return s.root.Close() }

// Path returns the path of a file.
func (s *Store) Path(name string) string { return filepath.Join(s.dir, name) }

// private returns an error if another user owns or can access a file or directory.
func private(info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return errors.New("it belongs to another user")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("its mode %#o gives access to other users", info.Mode().Perm())
	}
	return nil
}

// textLength is the length of the strings that rand.Text returns. They contain at least 128 random
// bits.
const textLength = 26

// open opens a file that no other user can read or write. It does not follow links that lead out of
// the directory. Errors: not_found if the file does not exist; invalid if other users can access
// it.
func (s *Store) open(name string) (*os.File, error) {
	f, err := s.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bourse.Errorf(bourse.CodeNotFound, "%w", err)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	if err := checkFile(f); err != nil {
		return nil, errors.Join(bourse.Errorf(bourse.CodeInvalid, "%s: %w", s.Path(name), err), f.Close())
	}
	return f, nil
}

// checkFile checks that an open file is a regular file that no other user can access.
func checkFile(f *os.File) error {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err == nil {
		err = private(info)
	}
	return err
}

// ReadFile reads a file of at most limit bytes that no other user can read or write. Errors:
// not_found if it does not exist; invalid if it is longer or other users can access it.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bourse.Errorf(bourse.CodeNotFound, "%w", err)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	defer f.Close()
	if err := checkFile(f); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s: %w", path, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s: %w", path, err)
	}
	return text, nil
}

// Read returns the random string in a file. It does not follow links that lead out of the
// directory. Errors: not_found if the file does not exist; invalid if it contains something else,
// or other users can access it.
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
		return "", bourse.Errorf(bourse.CodeInvalid, "%s does not contain valid credentials: remove it", s.Path(name))
	}
	return token, nil
}

// Keep returns the random string in a file. If the file does not exist, Keep creates it with a new
// string. Concurrent calls return the same string.
func (s *Store) Keep(name string) (string, error) {
	if text, err := s.Read(name); bourse.CodeOf(err) != bourse.CodeNotFound {
		return text, err
	}
	temp := ".new-" + rand.Text()
	if err := s.write(temp, rand.Text()+"\n"); err != nil {
		return "", bourse.Errorf(bourse.CodeInvalid, "write loopback credentials: %w", err)
	}
	err := s.root.Link(temp, name) // unlike Rename, Link does not replace an existing file
	if err := errors.Join(ignore(err, fs.ErrExist), s.root.Remove(temp)); err != nil {
		return "", bourse.Errorf(bourse.CodeInvalid, "write loopback credentials: %w", err)
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
	return errors.Join(err, f.Sync(), f.Close()) // a crash must not leave an empty file
}

// Remove removes a file. It returns nil if the file does not exist.
func (s *Store) Remove(name string) error { return ignore(s.root.Remove(name), fs.ErrNotExist) }
