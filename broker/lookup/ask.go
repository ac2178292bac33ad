package lookup

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Answer is what one of several workers said.
type Answer[T any] struct {
	From bourse.Member
	Got  T
	Err  error
}

// Ask puts one question to many workers side by side and returns their answers
// in the order of members, when all have answered or patience is at its end.
func Ask[T any](ctx context.Context, patience time.Duration, members []bourse.Member, question func(context.Context, bourse.Member) (T, error)) []Answer[T] {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := make([]Answer[T], len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		answers[i].From = m
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil { // one bad answer must not end the process
					answers[i].Err = bourse.Errorf(bourse.CodeInternal, "ask worker %s: panic: %v", m.ID, p)
				}
			}()
			answers[i].Got, answers[i].Err = question(ctx, m)
		})
	}
	wg.Wait()
	return answers
}

// Asking is a question to ask of many workers.
func Asking[Req, Rep any](f fabric.Fabric, v *fabric.Verb[Req, Rep], req Req) func(context.Context, bourse.Member) (Rep, error) {
	return func(ctx context.Context, to bourse.Member) (Rep, error) { return v.Call(ctx, f, to, req) }
}

// Silent returns those that did not answer.
func Silent[T any](answers []Answer[T]) []bourse.WorkerID {
	var out []bourse.WorkerID
	for _, a := range answers {
		if a.Err != nil {
			out = append(out, a.From.ID)
		}
	}
	return out
}

// NoneAnswered reports CodeUnavailable when there was no one to ask or no one
// answered: a reply made of nothing would be a lie.
func NoneAnswered[T any](answers []Answer[T]) error {
	if len(answers) == 0 {
		return bourse.Errorf(bourse.CodeUnavailable, "no worker has been heard of")
	}
	for _, a := range answers {
		if a.Err == nil {
			return nil
		}
	}
	return bourse.Errorf(bourse.CodeUnavailable, "none of %d workers answers: %w", len(answers), answers[0].Err)
}
