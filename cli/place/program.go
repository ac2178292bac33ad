package place

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/bourse-dev/bourse"
)

// LocalProgram makes a relative path to a program, such as "./server", absolute if the file
// exists, because a machine runs in another directory. If the file does not exist, the path
// stays unchanged, because the program may exist on another host.
func LocalProgram(i *bourse.Init) {
	list := i.Cmd
	if len(i.Entrypoint) > 0 {
		list = i.Entrypoint
	}
	if len(list) == 0 || filepath.IsAbs(list[0]) || !strings.Contains(list[0], "/") {
		return
	}
	path, err := filepath.Abs(list[0])
	if err != nil {
		return
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		list[0] = path
	}
}
