"""The commands' help in Chinese, by its English words; knows no command."""

from __future__ import annotations

from typing import Final

__all__ = ["CHINESE_HELP"]

CHINESE_HELP: Final = {
    "Run large language models on CPUs.": "在 CPU 上运行大语言模型。",
    "Language of messages; by default the locale's.": "提示与帮助的语言；默认取自 locale（LANG）。",
    "Show the version.": "显示版本。",
    "Show this message and exit.": "显示本说明并退出。",
    "Show the instruction set, threads and why, memory, versions and cache paths.": (
        "显示指令集、线程数及其原因、内存、版本和缓存路径。"
    ),
    "Print one JSON object on stdout and nothing else.": "在标准输出只打印一个 JSON 对象。",
    "Fetch and convert MODEL, the embedded one by default, ask it QUESTION, stream the answer.": (
        "下载并转换 MODEL（默认为内置模型），向它提问 QUESTION，流式显示回答。"
    ),
    "What to ask.": "要提的问题。",
    "What other commands take.": "与其他命令的 MODEL 相同。",
    "Tokens to generate at most.": "最多生成的词元数。",
    "fp32, bf16, a16w8 or a16w4; a16w8:32 … a16w8:512 or a16w8:row set the group size. "
    "a8w8 and a8w4 round activations, too.": (
        "fp32、bf16、a16w8 或 a16w4；a16w8:32 … a16w8:512 或 a16w8:row 指定分组大小。"
        "a8w8 和 a8w4 还会舍入激活值。"
    ),
    "Tokens of prompt and answer at most; by default as many as the model knows.": (
        "提示与回答合计的最大词元数；默认为模型支持的长度。"
    ),
    "Worker threads; by default as many as this process may use.": (
        "工作线程数；默认为本进程可用的数量。"
    ),
    "Fetch MODEL into the cache, or what changed since, and print where it lies.": (
        "将 MODEL 下载到缓存（已有则只下载变化的部分），并打印其位置。"
    ),
    "Directory (checkpoint or converted), GGUF file, ModelScope id (owner/name), hf:owner/name, "
    "or smollm2-135m.": (
        "目录（检查点或转换后的模型）、GGUF 文件、ModelScope 模型 ID（owner/name）、"
        "hf:owner/name，或 smollm2-135m。"
    ),
    "Convert MODEL into OUTPUT: an ONNX graph, its weights, the tokenizer.": (
        "将 MODEL 转换到 OUTPUT：ONNX 计算图、权重和分词器。"
    ),
    "Directory to make.": "要新建的目录。",
    "Replace a model that OUTPUT holds.": "替换 OUTPUT 中已有的模型。",
    "Complete PROMPT with MODEL; the text streams to stdout.": (
        "用 MODEL 续写 PROMPT，文本流式输出到标准输出。"
    ),
    "Text to continue.": "要续写的文本。",
    "0 takes the likeliest token.": "0 表示总取概率最大的词元。",
    "Mass of the likeliest tokens kept.": "保留概率最大的词元，直到累计概率达到此值。",
    "Likeliest tokens kept; 0 keeps all.": "只保留概率最大的若干词元；0 表示全部保留。",
    "Makes sampling repeatable.": "使采样可以重现。",
    "Format of cached keys and values: fp32, bf16, int8; auto: by weights and memory.": (
        "缓存的键和值的格式：fp32、bf16、int8；auto 依权重格式和内存而定。"
    ),
    "Talk with MODEL: answers stream, Ctrl-C stops one, Ctrl-D leaves, /help tells the rest.\n\n"
    "Lines of a pipe are messages; only answers go to stdout.": (
        "与 MODEL 对话：回答流式显示，Ctrl-C 停止当前回答，Ctrl-D 退出，/help 查看其余说明。\n\n"
        "管道中的每一行是一条消息；只有回答写到标准输出。"
    ),
    "System prompt.": "系统提示词。",
    "0 takes the likeliest token; by default as the model states, or 0.7.": (
        "0 表示总取概率最大的词元；默认取模型自带的值，没有则为 0.7。"
    ),
    "Mass of the likeliest tokens kept; as the model states, or 0.95.": (
        "保留概率最大的词元，直到累计概率达到此值；默认取模型自带的值，没有则为 0.95。"
    ),
    "Tokens of an answer at most.": "一次回答的最多词元数。",
    "Jinja template of a chat, in place of the model's own.": (
        "对话的 Jinja 模板，代替模型自带的模板。"
    ),
    "Measure MODEL: decoding, prefill, memory, and the share of the bandwidth it reaches.": (
        "测量 MODEL：解码、预填充、内存，以及达到带宽的几成。"
    ),
    "Length of a prompt (default: 128)": "提示词的长度（默认：128）",
    "Tokens to generate (default: 128)": "生成的词元数（默认：128）",
    "Prompt for prefill_tok_s (default: 512)": "测量 prefill_tok_s 的提示词长度（默认：512）",
    "Requests decoded together (default: 8)": "同时解码的请求数（默认：8）",
    "Runs; medians are reported.": "重复次数；报告中位数。",
    "Measure what another engine's table has, as it has it.": (
        "按其他引擎公布的表格的内容和格式测量。"
    ),
    "Compare with figures kept before; keep these where none are. What became 20 % worse is named, "
    "and the exit code is 1.": (
        "与保存过的数值比较；没有则保存本次的。变差 20 % 的指标会被列出，退出码为 1。"
    ),
    "Keep these figures for --baseline.": "保存本次数值，供 --baseline 使用。",
    "Continue PROMPT with MODEL and show where the time went, prefill and decode apart.": (
        "用 MODEL 续写 PROMPT，并显示时间花在哪里，预填充和解码分开列出。"
    ),
    "Text to continue; any by default.": "要续写的文本；默认为任意文本。",
    "Tokens to generate.": "生成的词元数。",
    "Write a Chrome trace (.json), for ui.perfetto.dev.": (
        "写出 Chrome trace（.json），可在 ui.perfetto.dev 查看。"
    ),
    "Write a picture (.png): operators, roofline, memory.": (
        "写出图片（.png）：算子、roofline、内存。"
    ),
    "Write a page (.html) with all tables and pictures.": "写出包含全部表格和图片的网页（.html）。",
    "Show MODEL's size, scheme, source, licence, context, tokenizer and graph.": (
        "显示 MODEL 的大小、量化方案、来源、许可证、上下文长度、分词器和计算图。"
    ),
    "Measure schedules of MODEL's linear layers, some 20 s; later loads use the quickest.": (
        "测量 MODEL 线性层的调度方案，约 20 秒；以后加载时采用最快的。"
    ),
    "Talk with MODEL in the browser; Ctrl-C ends. Nothing is shared beyond HOST.": (
        "在浏览器中与 MODEL 对话；Ctrl-C 结束。除 HOST 外不对外共享。"
    ),
    "Who may reach it; 0.0.0.0 lets everyone on the network.": (
        "允许谁访问；0.0.0.0 表示网络上的所有人。"
    ),
    "By default a free one from 7860 on.": "默认从 7860 起取一个空闲端口。",
    "What a proxy puts before the page; by default that of the notebook around.": (
        "代理在页面路径前加的前缀；默认取所在 Notebook 的前缀。"
    ),
    "List the supported architectures, by what a model's config.json calls them.\n\nUnder them, "
    "every architecture's formats and instruction sets, each proven by a test.": (
        "列出支持的架构，按模型 config.json 中的名称。\n\n"
        "其下是每个架构的格式和指令集，每一项都有测试证明。"
    ),
    "Name the test of each format of this one.": "列出该架构每种格式对应的测试。",
    "Remove models from the cache; all names are checked before anything goes.": (
        "从缓存中删除模型；先核对所有名称，再删除。"
    ),
    "As `list` names them.": "名称与 `list` 所列相同。",
    "Show where the cache is and what it takes; clear a kind, or prune what was left behind.": (
        "显示缓存的位置和占用；清空一类内容，或清理残留。"
    ),
    "Remove all of a kind: models, conversions, objects, lowered, schedules, gradio.": (
        "删除一类中的全部：models、conversions、objects、lowered、schedules、gradio。"
    ),
    "Remove what cut work left.": "删除被中断的操作留下的内容。",
    "List the models in the cache: fetched ones, and what they were converted to.": (
        "列出缓存中的模型：下载的，以及由它们转换的。"
    ),
}
"""Chinese of the commands', arguments' and options' help."""
