package logs

import (
	"os"
	"path/filepath"
)

// layout is where a keeper has what in its directory:
//
//	run/            what only this user may touch, as the others
//	  keeper.lock   held (flock) by the living keeper
//	  keeper.log    its own log
//	  socket        where it listens
//	logs/           see Files
type layout struct{ dir string }

// newLayout makes the directories.
func newLayout(dir string) (layout, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, err
	}
	for _, name := range []string{"run", "logs"} {
		if err := os.MkdirAll(filepath.Join(abs, name), 0o700); err != nil {
			return layout{}, err
		}
	}
	return layout{abs}, nil
}

func (l layout) run() string  { return filepath.Join(l.dir, "run") }
func (l layout) lock() string { return filepath.Join(l.dir, "run", "keeper.lock") }
func (l layout) log() string  { return filepath.Join(l.dir, "run", "keeper.log") }
func (l layout) files() Files { return Files{Dir: filepath.Join(l.dir, "logs")} }
