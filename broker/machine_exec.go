package broker

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// MachineHelper is what beside its life can be done to a machine.
type MachineHelper interface {
	// Exec runs a command beside the machine's program until it ends.
	Exec(ctx context.Context, to bourse.Member, id bourse.MachineID, exec fabric.ExecRequest) (fabric.ExecReply, error)
	// Lease takes or extends the machine's lease.
	Lease(ctx context.Context, to bourse.Member, id bourse.MachineID, lease fabric.LeaseRequest) (bourse.Lease, error)
	// Release ends the lease whose nonce act has.
	Release(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error)
	// Metadata changes the machine's metadata.
	Metadata(ctx context.Context, to bourse.Member, id bourse.MachineID, change fabric.MetadataRequest) (bourse.Machine, error)
}

// bounds of an exec.
const (
	defaultExec = 60 * time.Second
	maxExec     = 10 * time.Minute
	answerSlack = 5 * time.Second // for a worker to tell that time is up
)

func (b *Broker) execMachine(w http.ResponseWriter, r *request) error {
	var in machinesapi.ExecMachine
	if err := decode(w, r, false, &in); err != nil {
		return err
	}
	exec, err := execRequest(&in)
	if err != nil {
		return err
	}
	to, err := b.targetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(exec.Timeout)+answerSlack)
	defer cancel()
	done, err := b.Workers.Exec(ctx, to.worker, to.id, exec)
	if err != nil {
		return workerError(r.Context(), to.worker.ID, changing, err)
	}
	code, _ := machinesapi.ExitStatus(done.Exit)
	return writeJSON(w, http.StatusOK, machinesapi.ExecReply{
		ExitCode: code, ExitSignal: done.Exit.Signal, Stdout: string(done.Stdout), Stderr: string(done.Stderr),
	})
}

// execRequest reads what is to be executed. Codes: invalid.
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
		return out, bourse.Errorf(bourse.CodeInvalid, "invalid command: it is required")
	case strings.ContainsRune(strings.Join(out.Command, ""), 0):
		return out, bourse.Errorf(bourse.CodeInvalid, "invalid command: it holds a NUL byte")
	case in.Container != "":
		return out, bourse.Errorf(bourse.CodeInvalid, "invalid container %s: the machine has none", bourse.Quoted(in.Container))
	case in.Timeout < 0 || in.Timeout > int64(maxExec/time.Second):
		return out, bourse.Errorf(bourse.CodeInvalid, "invalid timeout %d: use 0 to %d seconds", in.Timeout, int64(maxExec/time.Second))
	case in.Timeout > 0:
		out.Timeout = bourse.Duration(time.Duration(in.Timeout) * time.Second)
	}
	return out, nil
}

// splitWords splits a command line into words as a shell does, by space with
// '…', "…" and \, and expands nothing. Codes: invalid.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quote, inWord, escaped := rune(0), false, false
	for _, c := range line {
		switch {
		case escaped:
			// Within "…" a backslash is itself unless it protects one of these.
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
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid cmd %s: a quote or backslash is left open", bourse.Quoted(line))
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
