package logs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
)

// layout is where a keeper has what in its directory:
//
//	run/            what only this user may touch, as the others
//	  keeper.lock   held (flock) by the living keeper
//	  keeper.log    its own log
//	  socket        where it listens
//	logs/           see Files
//	spool/<machine>/<boot>.<stream>.*   see spool
type layout struct{ dir string }

// newLayout makes the directories.
func newLayout(dir string) (layout, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, err
	}
	for _, name := range []string{"run", "logs", "spool"} {
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

func (l layout) spools(id bourse.MachineID) string { return filepath.Join(l.dir, "spool", string(id)) }

// base gives a spool's name.
func (l layout) base(id sourceID, stream string) string {
	return filepath.Join(l.spools(id.machine), strconv.Itoa(id.boot)+"."+stream)
}

// spooled is a spool that is on disk.
type spooled struct {
	sourceID
	stream string
}

// listSpools gives the spools of a machine, those that are named as ours are.
func (l layout) listSpools(id bourse.MachineID) []spooled {
	entries, _ := os.ReadDir(l.spools(id)) // of a machine without any it is not there
	var out []spooled
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), ".note")
		number, stream, cut := strings.Cut(base, ".")
		boot, err := strconv.Atoi(number)
		if ok && cut && err == nil && boot > 0 && (stream == "stdout" || stream == "stderr") {
			out = append(out, spooled{sourceID{id, boot}, stream})
		}
	}
	return out
}

// remove removes all that is kept of a machine.
func (l layout) remove(id bourse.MachineID) error {
	if err := l.files().Remove(id); err != nil {
		return err
	}
	return os.RemoveAll(l.spools(id))
}
