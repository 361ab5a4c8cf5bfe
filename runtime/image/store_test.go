package image_test

import (
	"testing"

	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/image/imagetest"
)

func TestFake(t *testing.T) {
	e := &imagetest.Engine{}
	e.Add("base:1", 1000)
	imagetest.Run(t, imagetest.Suite{Engine: e, Base: "base:1", Options: image.Options{Builds: 4}})
}
