package fabric

import (
	"bufio"
	"context"
	"encoding/json"
	"io"

	"github.com/bourse-dev/bourse"
)

// maxLine bounds one line of a stream of JSON lines. Workers cut a machine's
// lines far below it.
const maxLine = 1 << 20

// readLines calls line with each JSON line of a worker's reply until its end, or
// until line returns an error, which it returns. A stream that breaks off
// before its end is an error.
func readLines[T any](ctx context.Context, from bourse.Member, reply io.Reader, line func(T) error) error {
	lines := bufio.NewScanner(reply)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			if broken := readOn(lines); broken != nil {
				return Lost(ctx, from, broken) // it was the half of a line
			}
			return bourse.Errorf(bourse.CodeInternal, "worker %s sent a line that cannot be read: %w", from.ID, err)
		}
		if err := line(v); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return Lost(ctx, from, err)
	}
	return nil
}

// readOn returns the error if the stream ends in one right here: a scanner returns
// what came before the error as its last line.
func readOn(lines *bufio.Scanner) error {
	if lines.Scan() {
		return nil
	}
	return lines.Err()
}
