package fsm_test

import (
	"context"
	"fmt"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/fsm/fsmtest"
)

func Example() {
	type order struct{ Cake string }
	type cake struct{ Done string }

	bake := fsm.Define[order, cake]("cake.bake").
		Step("mix", func(context.Context, *fsm.Run[order, cake]) fsm.Outcome { return fsm.Done() }).
		Step("bake", func(_ context.Context, r *fsm.Run[order, cake]) fsm.Outcome {
			r.Result.Done = r.Request.Cake + " in the oven"
			return fsm.Done()
		})

	engine := fsm.New(fsm.Config{Journal: new(fsmtest.Memory).Journal()})
	engine.Register(bake)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()

	run, err := bake.Start(ctx, engine, "oven/1", order{"apple pie"}, fsm.StartOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := run.Wait(ctx)
	fmt.Println(result.Done, err)
	stop()
	fmt.Println(<-ended)
	// Output:
	// apple pie in the oven <nil>
	// <nil>
}
