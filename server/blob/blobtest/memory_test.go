package blobtest

import (
	"testing"

	"hallmark/server/blob"
)

func TestMemory(t *testing.T) { Run(t, func(*testing.T) blob.Store { return &Memory{} }) }
