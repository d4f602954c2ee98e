package execwatch_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"hallmark/execwatch"
)

// Print which programs are executed, for as long as the context lasts.
func Example() {
	w, err := execwatch.Start(execwatch.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = w.Run(ctx, func(ev *execwatch.Event) error {
		if ev.Kind == execwatch.Executed {
			fmt.Println(ev.PID, ev.Program.Path, ev.Program.ID)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
