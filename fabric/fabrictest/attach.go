package fabrictest

import (
	"context"
	"errors"
	"io"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/duplex"
)

// Attach starts a command in a machine and returns a stream for its input and output. The stream ends when the command
// ends or ctx is done. The caller must read the stream to its end or close it.
func Attach(ctx context.Context, f fabric.Fabric, to bourse.Member, id bourse.MachineID, start fabric.ExecStart) (*duplex.Stream, error) {
	dial := func(body io.ReadCloser) (io.ReadCloser, error) {
		return fabric.MachineAttach.Open(ctx, f, to, id, body)
	}
	return duplex.Open(start, dial, func(err error) error {
		if _, coded := errors.AsType[*bourse.Error](err); coded {
			return err
		}
		return fabric.Lost(ctx, to, err)
	})
}
