package process

import (
	"bytes"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// Log files are in the CRI's format, which log collectors know:
//
//	2026-01-02T15:04:05.000000006Z stdout F the line
//	2026-01-02T15:04:05.000000006Z stdout P a piece of a long line, not its last
//
// See kubernetes/cri-api: docs/logging, "container runtime logging".

// maxLine is how many bytes of a line are kept in one piece.
const maxLine = 16 << 10

// appendLine adds one record to b.
func appendLine(b []byte, at time.Time, stream string, partial bool, text []byte) []byte {
	b = at.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, ' ')
	b = append(b, stream...)
	if partial {
		b = append(b, " P "...)
	} else {
		b = append(b, " F "...)
	}
	b = append(b, text...)
	return append(b, '\n')
}

// parseLine reads one record, without its newline; false for what is none,
// such as the rest of a line that a crash tore.
func parseLine(b []byte) (driver.LogLine, bool) {
	stamp, rest, ok := bytes.Cut(b, []byte(" "))
	if !ok {
		return driver.LogLine{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return driver.LogLine{}, false
	}
	stream, rest, ok := bytes.Cut(rest, []byte(" "))
	if !ok || (string(stream) != "stdout" && string(stream) != "stderr") || len(rest) < 2 || rest[1] != ' ' {
		return driver.LogLine{}, false
	}
	if rest[0] != 'F' && rest[0] != 'P' {
		return driver.LogLine{}, false
	}
	return driver.LogLine{At: at, Stream: string(stream), Partial: rest[0] == 'P', Text: string(rest[2:])}, true
}

// splitLines cuts data into lines and gives each to line; long ones in pieces,
// all but the last partial. It gives what is left over: the beginning of a
// line that has not ended yet.
func splitLines(data []byte, line func(text []byte, partial bool)) []byte {
	for len(data) > 0 {
		i := bytes.IndexByte(data[:min(len(data), maxLine+1)], '\n')
		switch {
		case i >= 0:
			line(data[:i], false)
			data = data[i+1:]
		case len(data) > maxLine:
			line(data[:maxLine], true)
			data = data[maxLine:]
		default:
			return data
		}
	}
	return nil
}
