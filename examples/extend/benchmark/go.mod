module example.com/spelling

go 1.26.0

require github.com/evalrun/evalrun v0.0.0

replace github.com/evalrun/evalrun => ../../..
