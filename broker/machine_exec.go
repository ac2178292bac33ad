package broker

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Limits for exec.
const (
	defaultExec = 60 * time.Second
	maxExec     = 10 * time.Minute
	replyMargin = 5 * time.Second // extra time in which the worker can report a timeout
)

func (h *machineHandler) execMachine(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.ExecMachine
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	exec, err := execRequest(&in)
	if err != nil {
		return err
	}
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(exec.Timeout)+replyMargin)
	defer cancel()
	exec.Machine = to.id
	done, err := fabric.MachineExec.Call(ctx, h.Workers, to.worker, exec)
	if err != nil {
		return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Changing, err)
	}
	code, _ := machinesapi.ExitStatus(done.Exit)
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.ExecReply{
		ExitCode: code, ExitSignal: done.Exit.Signal, Stdout: string(done.Stdout), Stderr: string(done.Stderr),
	})
}

// execRequest converts an API request's body to the request for the worker. Errors: invalid.
func execRequest(in *machinesapi.ExecMachine) (fabric.ExecRequest, error) {
	out := fabric.ExecRequest{Command: in.Command, Stdin: []byte(in.Stdin), Timeout: bourse.Duration(defaultExec)}
	if len(out.Command) == 0 {
		words, err := splitWords(in.Cmd)
		if err != nil {
			return out, err
		}
		out.Command = words
	}
	switch {
	case len(out.Command) == 0 || out.Command[0] == "":
		return out, bourse.Errorf(bourse.CodeInvalid, "command is required")
	case strings.ContainsRune(strings.Join(out.Command, ""), 0):
		return out, bourse.Errorf(bourse.CodeInvalid, "invalid command: it contains a NUL byte")
	case in.Container != "":
		return out, bourse.Errorf(bourse.CodeInvalid, "invalid container %s: the machine has none", bourse.Quoted(in.Container))
	case in.Timeout < 0 || in.Timeout > int64(maxExec/time.Second):
		return out, bourse.Errorf(bourse.CodeInvalid, "invalid timeout %d: use 0 to %d seconds", in.Timeout, int64(maxExec/time.Second))
	case in.Timeout > 0:
		out.Timeout = bourse.Duration(time.Duration(in.Timeout) * time.Second)
	}
	return out, nil
}

// splitWords splits a command line into words as a shell does. It supports '…', "…" and \, but no
// expansions. Errors: invalid.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quote, inWord, escaped := rune(0), false, false
	for _, c := range line {
		switch {
		case escaped:
			// Within "…", a backslash is literal unless it precedes one of these characters.
			if quote == '"' && c != '"' && c != '\\' && c != '$' && c != '`' {
				word.WriteByte('\\')
			}
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if quote != 0 || escaped {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid cmd %s: unterminated quote or trailing backslash", bourse.Quoted(line))
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
