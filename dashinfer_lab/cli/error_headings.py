"""Kinds of errors in Chinese, and what can be done about each; knows no error class."""

from __future__ import annotations

from typing import Final

__all__ = ["ERROR_HEADINGS"]

_KINDS = {
    "BaseException": "操作失败",
    "KeyboardInterrupt": "已中断",
    "MemoryError": "内存不足",
    "OSError": "系统错误",
    "DashInferLabError": "操作失败",
    "ConfigError": "选项或环境变量的值不合理",
    "HubError": "找不到模型，或无法下载、校验模型",
    "HubUnreachableError": "没有网络，或模型站点没有响应",
    "CacheError": "无法从缓存中删除",
    "CheckpointError": "模型文件缺失、被截断或内容不符",
    "UnsupportedModelError": "模型文件完好，但此版本不支持其中的内容",
    "ConversionError": "无法转换该检查点",
    "ArtifactError": "转换后的模型已损坏，或来自其他格式版本",
    "TokenizerError": "分词器文件或对话模板不可用",
    "RequestError": "请求被拒绝，其他请求不受影响",
    "EngineError": "引擎无法服务",
    "EngineClosedError": "引擎已关闭",
    "EngineBusyError": "引擎队列已满",
    "DeadlineError": "请求超过期限而终止，其他请求继续",
    "NonFiniteError": "请求遇到 NaN 或无穷大而终止，其他请求继续",
    "SamplingError": "请求已无可选的词元而终止，其他请求继续",
    "JitKernelsError": "无法为本机编译或运行内核",
}

_REMEDIES = {
    "MemoryError": "请换用更小的权重格式（--weights a16w4）或更短的上下文，或关闭其他程序",
    "OSError": "请检查路径、权限和磁盘空间",
    "ConfigError": "请按下面的说明修改该值；--help 列出可用的选项",
    "HubError": "请核对名称或路径；dashinfer-lab list 列出已有的模型，"
    "内置模型 smollm2-135m 无需下载站点",
    "HubUnreachableError": "请检查网络，或设置 MODELSCOPE_ENDPOINT、HF_ENDPOINT 指向可用的镜像；"
    "已下载的部分会保留，内置模型 smollm2-135m 无需网络",
    "CacheError": "请检查下面提到的目录的写权限，或自行删除",
    "CheckpointError": "请重新下载下面提到的文件（dashinfer-lab pull）",
    "UnsupportedModelError": "请换用 dashinfer-lab models 列出的架构，"
    "或该模型未量化的 safetensors 版本",
    "ConversionError": "请检查下面提到的张量或输出目录",
    "ArtifactError": "请重新转换该模型（dashinfer-lab convert）",
    "TokenizerError": "请补上缺失的文件，或用 --chat-template 提供模板",
    "RequestError": "请按下面的说明修改请求",
    "EngineClosedError": "请重新加载模型",
    "EngineBusyError": "请稍后重试",
    "DeadlineError": "请放宽期限，或减少要生成的词元",
    "NonFiniteError": "请换用 fp32 或 bf16 权重，或检查模型文件是否损坏",
    "SamplingError": "请放宽对词元的限制",
    "JitKernelsError": "请用 dashinfer-lab info 查看本机的指令集和版本",
}

ERROR_HEADINGS: Final = {
    name: f"{kind}。{_REMEDIES[name]}" if name in _REMEDIES else kind
    for name, kind in _KINDS.items()
}
"""Heading of an error in Chinese, by the name of its class; its detail follows in English."""
