package broker

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// answer is what one of several workers said.
type answer[T any] struct {
	from bourse.Member
	got  T
	err  error
}

// ask puts one question to many workers side by side and gives their answers
// in the order of members, when all have answered or patience is at its end.
func ask[T any](ctx context.Context, patience time.Duration, members []bourse.Member, question func(context.Context, bourse.Member) (T, error)) []answer[T] {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := make([]answer[T], len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		answers[i].from = m
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil { // one bad answer must not end the process
					answers[i].err = bourse.Errorf(bourse.CodeInternal, "ask worker %s: panic: %v", m.ID, p)
				}
			}()
			answers[i].got, answers[i].err = question(ctx, m)
		})
	}
	wg.Wait()
	return answers
}

// silent gives those that did not answer.
func silent[T any](answers []answer[T]) []bourse.WorkerID {
	var out []bourse.WorkerID
	for _, a := range answers {
		if a.err != nil {
			out = append(out, a.from.ID)
		}
	}
	return out
}

// noneAnswered reports CodeUnavailable when there was nobody to ask or nobody
// answered: a reply made of nothing would be a lie.
func noneAnswered[T any](answers []answer[T]) error {
	if len(answers) == 0 {
		return bourse.Errorf(bourse.CodeUnavailable, "no worker has been heard of")
	}
	for _, a := range answers {
		if a.err == nil {
			return nil
		}
	}
	return bourse.Errorf(bourse.CodeUnavailable, "none of %d workers answers: %w", len(answers), answers[0].err)
}

// showSilent names the workers whose part is missing in the reply.
func showSilent(r interface{ Set(key, value string) }, ids []bourse.WorkerID) {
	if len(ids) == 0 {
		return
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	r.Set(machinesapi.HeaderUnreachable, strings.Join(names, ","))
}
