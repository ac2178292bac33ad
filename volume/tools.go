package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/bourse-dev/bourse/internal/tuning"
)

// tool returns the path of a program. It also searches directories that a daemon's PATH may not
// contain.
func tool(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", err
}

// run runs a program on the host and waits until it exits. ok lists the exit codes other than 0
// that are not errors.
func run(ctx context.Context, stdin []byte, argv []string, ok ...int) error {
	return runWith(ctx, stdin, nil, argv, ok...)
}

// runWith is like run, but passes files to the program as descriptors 3 and up.
func runWith(ctx context.Context, stdin []byte, files []*os.File, argv []string, ok ...int) error {
	path, err := tool(argv[0])
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.ExtraFiles = files
	cmd.Stdin = bytes.NewReader(stdin)
	// Ignore the host's configuration, because file systems must be the same on every worker.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MKE2FS_CONFIG=/dev/null")
	cmd.SysProcAttr = killWithParent()
	// Pdeathsig kills the program when the thread that started it exits, so keep that thread alive.
	// The program must not outlive this process, because a restarted daemon may recreate the image
	// that the program writes to.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	tuning.ForkUnprotected(func() { err = cmd.Start() })
	if err == nil {
		err = cmd.Wait()
	}
	out := output.Bytes()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	exit, exited := errors.AsType[*exec.ExitError](err)
	if exited && slices.Contains(ok, exit.ExitCode()) {
		return nil
	}
	text := strings.Join(strings.Fields(string(out)), " ")
	if strings.Contains(text, "No space left on device") {
		err = errors.Join(err, syscall.ENOSPC)
	}
	return fmt.Errorf("%s: %w: %.400s", argv[0], err, text)
}
