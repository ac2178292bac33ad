package broker

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Operator looks into a worker and helps its runs along.
type Operator interface {
	// Facts gives what the worker says of itself.
	Facts(ctx context.Context, to bourse.Member) (bourse.Facts, error)
	// Runs lists the worker's runs, those that have ended only when asked for.
	Runs(ctx context.Context, to bourse.Member, ended bool) ([]fabric.Run, error)
	// RunRetry has a stuck run try its step again.
	RunRetry(ctx context.Context, to bourse.Member, run string) (fabric.Run, error)
	// RunSkip has a stuck run go on with its next step.
	RunSkip(ctx context.Context, to bourse.Member, run string) (fabric.Run, error)
	// RunCancel asks a run to end.
	RunCancel(ctx context.Context, to bourse.Member, run string) (fabric.Run, error)
}

// listWorkers shows every worker heard of, with its own account of itself when
// it answers.
func (b *Broker) listWorkers(w http.ResponseWriter, r *request) error {
	members := b.Directory.Workers()
	slices.SortFunc(members, func(x, y bourse.Member) int { return cmp.Or(cmp.Compare(x.Region, y.Region), cmp.Compare(x.ID, y.ID)) })
	answers := ask(r.Context(), b.Patience, members, b.Workers.Facts)
	list := machinesapi.WorkerList{Workers: make([]machinesapi.Worker, len(answers))}
	for i := range answers {
		list.Workers[i] = showWorker(&answers[i])
	}
	showSilent(w.Header(), silent(answers))
	return writeJSON(w, http.StatusOK, list)
}

func (b *Broker) getWorker(w http.ResponseWriter, r *request) error {
	member, err := b.worker(r)
	if err != nil {
		return err
	}
	answers := ask(r.Context(), b.Patience, []bourse.Member{member}, b.Workers.Facts)
	return writeJSON(w, http.StatusOK, showWorker(&answers[0]))
}

func showWorker(a *answer[bourse.Facts]) machinesapi.Worker {
	m := &a.from
	out := machinesapi.Worker{
		ID: m.ID, Region: m.Region, Address: m.Address, Tag: m.Tag.String(), Leaving: m.Leaving, Status: machinesapi.WorkerOK,
	}
	if a.err != nil {
		out.Status, out.Error = machinesapi.WorkerUnreachable, bourse.MessageOf(a.err)
		return out
	}
	out.Facts = &a.got
	return out
}

// worker finds the path's worker. Codes: not_found.
func (b *Broker) worker(r *request) (bourse.Member, error) {
	id := bourse.WorkerID(r.PathValue("worker"))
	member, ok := b.Directory.Worker(id)
	if !ok && len(b.absentThat(func(a *bourse.Absence) bool { return a.ID == id })) > 0 {
		return member, bourse.Errorf(bourse.CodeUnavailable, "worker %s cannot be reached", id)
	}
	if !ok {
		return member, bourse.Errorf(bourse.CodeNotFound, "worker %s not found", bourse.Quoted(string(id)))
	}
	return member, nil
}

func (b *Broker) listRuns(w http.ResponseWriter, r *request) error {
	ended, err := queryBool(r, "ended")
	if err != nil {
		return err
	}
	member, err := b.worker(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), b.Patience)
	defer cancel()
	runs, err := b.Workers.Runs(ctx, member, ended)
	if err != nil {
		return workerError(r.Context(), member.ID, reading, err)
	}
	list := machinesapi.RunList{Runs: make([]machinesapi.Run, len(runs))}
	for i, run := range runs {
		list.Runs[i] = machinesapi.Run(run)
	}
	return writeJSON(w, http.StatusOK, list)
}

func (b *Broker) retryRun(w http.ResponseWriter, r *request) error {
	return b.actOnRun(w, r, b.Workers.RunRetry)
}

func (b *Broker) skipRun(w http.ResponseWriter, r *request) error {
	return b.actOnRun(w, r, b.Workers.RunSkip)
}

func (b *Broker) cancelRun(w http.ResponseWriter, r *request) error {
	return b.actOnRun(w, r, b.Workers.RunCancel)
}

func (b *Broker) actOnRun(w http.ResponseWriter, r *request, do func(context.Context, bourse.Member, string) (fabric.Run, error)) error {
	member, err := b.worker(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), b.Patience)
	defer cancel()
	run, err := do(ctx, member, r.PathValue("run"))
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return bourse.Errorf(bourse.CodeNotFound, "run %s not found on worker %s", bourse.Quoted(r.PathValue("run")), member.ID)
	}
	if err != nil {
		return workerError(r.Context(), member.ID, changing, err)
	}
	return writeJSON(w, http.StatusOK, machinesapi.Run(run))
}
