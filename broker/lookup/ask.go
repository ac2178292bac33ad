package lookup

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Answer is one worker's answer to a question that was sent to several workers.
type Answer[T any] struct {
	From bourse.Member
	Got  T
	Err  error
}

// Ask calls question for each member in parallel. It returns the answers in the order of members, once all workers have
// answered or the time limit has expired.
func Ask[T any](ctx context.Context, timeout time.Duration, members []bourse.Member, question func(context.Context, bourse.Member) (T, error)) []Answer[T] {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answers := make([]Answer[T], len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		answers[i].From = m
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil { // a panic caused by an invalid answer must not crash the process
					answers[i].Err = bourse.Errorf(bourse.CodeInternal, "ask worker %s: panic: %v", m.ID, p)
				}
			}()
			answers[i].Got, answers[i].Err = question(ctx, m)
		})
	}
	wg.Wait()
	return answers
}

// Asking returns a question for [Ask] that calls the verb v with the request req.
func Asking[Req, Rep any](f fabric.Fabric, v *fabric.Verb[Req, Rep], req Req) func(context.Context, bourse.Member) (Rep, error) {
	return func(ctx context.Context, to bourse.Member) (Rep, error) { return v.Call(ctx, f, to, req) }
}

// Unresponsive returns the workers that did not answer, or answered with an error.
func Unresponsive[T any](answers []Answer[T]) []bourse.WorkerID {
	var out []bourse.WorkerID
	for _, a := range answers {
		if a.Err != nil {
			out = append(out, a.From.ID)
		}
	}
	return out
}

// NoneAnswered returns CodeUnavailable if there were no workers to ask, or if none of them
// answered. In both cases, an empty result would be misleading.
func NoneAnswered[T any](answers []Answer[T]) error {
	if len(answers) == 0 {
		return bourse.Errorf(bourse.CodeUnavailable, "no workers are known")
	}
	for _, a := range answers {
		if a.Err == nil {
			return nil
		}
	}
	return bourse.Errorf(bourse.CodeUnavailable, "none of %d workers answered: %w", len(answers), answers[0].Err)
}
